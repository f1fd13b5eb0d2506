// Runs that were given up in this process, by device. Engines are many and a device is one: what a kernel that hangs holds up it
// holds up for all of them, and the driver frees nothing for any before it has ended. So all engines of a device are given up
// together, and none is opened there until the run has ended. Not here: when a run counts as one that hangs (patience.h).
#pragma once
#include "driver.h"

namespace toktier::gpu {

// An engine opens on a device, and ends. Throws GpuError, hung, where a run that was given up there goes on; under a
// CurrentContext.
void join_device(const Driver& driver, int ordinal);
void leave_device(const Driver& driver) noexcept;

// The run in this stream hangs: its driver is given up, and every other one that joined the same device.
void give_up_device(const Driver& driver, CuStream stream);

}  // namespace toktier::gpu
