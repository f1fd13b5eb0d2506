// What help() shows of the methods of SessionBase. The first lines are the text signatures; the stub has the types.
#pragma once

namespace toktier::bind {

constexpr char session_append_doc[] = R"(append($self, text, *, expected_revision=None)
--

Adds text at the end; gives the TokenPatch: keep the first keep_tokens ids, put replacement_ids behind them.

text: str, or bytes, bytearray or memoryview of UTF-8: whole characters.
expected_revision: raises SessionRevisionConflict, and changes nothing, where the session is at another one.

Work grows with the text that is added and the stretch since the last place to cut, not with what is there already. An
empty text changes nothing, the revision included.)";
constexpr char session_replace_doc[] = R"(replace($self, start, text, *, expected_revision=None)
--

Everything from code point start on becomes text; gives the TokenPatch. With an empty text it cuts the end off.

Raises ValueError for a start that is not in the text; SessionNeedsText where a session that was opened again does not
hold what stands before it. Arguments and other errors are those of append.)";
constexpr char session_present_doc[] = R"(present($self, text, add_special_tokens=False)
--

The whole text as it is now; gives its Encoding. Encodes what differs from what the session holds.

add_special_tokens: the Encoding has the tokens that the file's post-processor puts around a text; the session does not.)";
constexpr char session_snapshot_doc[] = R"(snapshot($self)
--

All ids, as an Encoding with a copy of the text.)";

}  // namespace toktier::bind
