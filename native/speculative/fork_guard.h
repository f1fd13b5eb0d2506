// Holds every lock of every shared cache over a fork, so that the child finds whole scopes and free locks. Kept apart from the
// cache because handlers of fork are the process's: they are registered once and never taken back.
#pragma once

namespace toktier::speculative {

class SharedCache;

class ForkGuard {
 public:
  static void add(SharedCache* cache);
  static void remove(SharedCache* cache);

 private:
  static void prepare();
  static void release();  // in the parent and in the child
};

}  // namespace toktier::speculative
