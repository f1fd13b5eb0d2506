// Raises toktier.errors. The classes are looked up when one is raised: the package is imported by then, and errors are rare.
#include "bind/errors.h"

#include <exception>
#include <new>
#include <string>

#include "engine/engine.h"

namespace toktier::bind {

namespace {

// Raises `class_name(message, details=…, remedy=…)`; takes over nothing.
void raise(const char* class_name, const std::string& message, PyObject* details, const char* remedy) {
  const Ref module(PyImport_ImportModule("toktier.errors"));
  if (!module) return;
  const Ref type(PyObject_GetAttrString(module.get(), class_name));
  if (!type) return;
  const Ref arguments(Py_BuildValue("(s#)", message.data(), Py_ssize_t(message.size())));
  const Ref keywords(PyDict_New());
  const Ref advice(remedy == nullptr ? Py_NewRef(Py_None) : PyUnicode_FromString(remedy));
  if (!arguments || !keywords || !advice) return;
  if (details != nullptr && PyDict_SetItemString(keywords.get(), "details", details) != 0) return;
  if (PyDict_SetItemString(keywords.get(), "remedy", advice.get()) != 0) return;
  const Ref error(PyObject_Call(type.get(), arguments.get(), keywords.get()));
  if (error) PyErr_SetObject(type.get(), error.get());
}

std::string where(Py_ssize_t item) { return item < 0 ? "" : ", item " + std::to_string(item); }

}  // namespace

void set_invalid_text(const TextFault& fault, Py_ssize_t item) {
  const std::string message = (fault.what != nullptr  ? std::string(fault.what)
                               : fault.is_str ? "lone surrogate at position " + std::to_string(fault.position)
                                              : "malformed UTF-8 at byte " + std::to_string(fault.position)) +
                              where(item);
  const Ref details(item < 0 ? Py_BuildValue("{s:n}", "position", Py_ssize_t(fault.position))
                             : Py_BuildValue("{s:n,s:n}", "position", Py_ssize_t(fault.position), "item", item));
  if (!details) return;
  raise("InvalidText", message, details.get(),
        fault.what != nullptr ? "split the text"
        : fault.is_str        ? "remove or replace the surrogate"
                              : "pass UTF-8, or decode the bytes first");
}

void set_not_a_text(PyObject* object, Py_ssize_t item) {
  PyErr_Format(PyExc_TypeError, "expected str or bytes of UTF-8, not %.100s%s", Py_TYPE(object)->tp_name, where(item).c_str());
}

void set_unsupported_config(const char* message) { raise("UnsupportedConfig", message, nullptr, nullptr); }

void set_invalid_token(PyObject* token, Py_ssize_t index) {
  PyErr_Clear();
  const Ref shown(PyObject_Repr(token));
  const char* text = shown ? PyUnicode_AsUTF8(shown.get()) : nullptr;
  if (text == nullptr) PyErr_Clear();
  std::string value = text == nullptr ? "of another type" : text;
  if (value.size() > 80) {
    std::size_t end = 80;
    while ((static_cast<unsigned char>(value[end]) & 0xC0) == 0x80) --end;  // not inside a character
    value = value.substr(0, end) + "...";
  }
  const std::string message = "ids[" + std::to_string(index) + "] is " + value + ", not an integer from 0 to 4294967295";
  const Ref details(Py_BuildValue("{s:n}", "index", index));
  if (details) raise("InvalidToken", message, details.get(), nullptr);
}

void set_marker_token(Py_ssize_t index) {
  const std::string message = "ids[" + std::to_string(index) +
                              "] is 4294967295, which marks the end of a stored stretch: expected IDs up to 4294967294";
  const Ref details(Py_BuildValue("{s:n}", "index", index));
  if (details) raise("InvalidToken", message, details.get(), "leave padding and placeholders out of what is inserted");
}

void set_config_invalid(const char* message, const char* remedy) { raise("ConfigInvalid", message, nullptr, remedy); }

void set_session_conflict(PyObject* expected, PyObject* found) {
  const Ref details(Py_BuildValue("{s:O,s:O}", "expected", expected, "found", found));
  const Ref message(PyUnicode_FromFormat("the session is at revision %S: expected revision %S", found, expected));
  const char* const text = message ? PyUnicode_AsUTF8(message.get()) : nullptr;
  if (!details || text == nullptr) return;
  raise("SessionRevisionConflict", text, details.get(), "apply the change to what the session holds now");
}

void set_session_needs_text(std::size_t held_from) {
  const Ref details(Py_BuildValue("{s:n}", "held_from", Py_ssize_t(held_from)));
  if (!details) return;
  raise("SessionNeedsText",
        "the session was opened again and holds its text from code point " + std::to_string(held_from) + " on, nothing before",
        details.get(), "present the whole text: encode(text, session=...); or make sessions with keep_text=True");
}

void set_internal_error(const char* message) {
  raise("InternalError", message, nullptr, "report it with the text and the tokenizer.json");
}

void set_from_current_exception(Py_ssize_t item) {
  try {
    throw;
  } catch (const TextError& error) {
    set_invalid_text({error.position, false, error.what.c_str()}, item);
  } catch (const SettingsError& error) {
    set_unsupported_config((error.what + where(item)).c_str());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    set_internal_error(error.what());
  } catch (...) {
    set_internal_error("the native engine failed without a reason");
  }
}

}  // namespace toktier::bind
