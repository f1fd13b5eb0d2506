"""Examples of every verb: what one types, and what it is for. Help pages end with them, and tests parse each.

Data alone, read only when a help page is printed. Not here: examples with their output (tests/conversations).
"""

from __future__ import annotations

# verb: (line, what it is for); one long line each
# ruff: noqa: E501
EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "encode": (
        ('toktier encode --family qwen3_8b "hello world"', "IDs of a text"),
        ("toktier encode --file tokenizer.json --input book.txt --format u32 > book.u32", "a file of any size, as raw numbers"),
        ("zcat dump.gz | toktier encode --family qwen3_8b - --special", "a stream, with the special tokens of the template"),
        ('toktier encode --family qwen3_8b "hello" --offsets --explain', "where each token stands, and which engine served"),
    ),
    "decode": (
        ("toktier decode --family qwen3_8b 14990 1879", "text of IDs"),
        ("toktier decode --family qwen3_8b --format u32 < book.u32", "of raw numbers"),
    ),
    "count": (
        ("toktier count --family qwen3_8b README.md docs/*.md", "the total of some files"),
        ("toktier count --family qwen3_8b --recursive corpus --suffix .txt --per-file", "a table of a directory"),
        ("toktier count --family qwen3_8b 'corpus/**/*.jsonl' --jobs 4 --json", "a pattern, as JSON"),
    ),
    "inspect": (
        ("toktier inspect", "every pinned family"),
        ("toktier inspect tokenizer.json", "what a file is, what it equals, what serves it"),
        ("toktier inspect qwen3_8b --tables", "the long tables too"),
        ("toktier inspect old/tokenizer.json new/tokenizer.json", "where the IDs of two tokenizers can differ"),
        ("toktier inspect Qwen/Qwen3-0.6B", "what was audited of a repository"),
        ('toktier inspect qwen3_8b --text "hello wor"', "where a text may be cut, and what an append to it encodes again"),
    ),
    "doctor": (
        ("toktier doctor", "what will run here, and why not faster"),
        ("toktier doctor --family qwen3_8b --json", "for a ticket"),
    ),
    "bench": (
        ("toktier bench", "this machine's numbers for a small tokenizer that the package brings"),
        ("toktier bench --family qwen3_8b --input book.txt --peers", "your tokenizer on your text, beside every engine here"),
    ),
    "artifacts list": (
        ("toktier artifacts list", "what is in the cache"),
        ("toktier artifacts list --available", "every pinned family"),
    ),
    "artifacts fetch": (
        ("toktier artifacts fetch qwen3_8b", "from the first source that has it"),
        ("toktier artifacts fetch qwen3_8b --from /mnt/mirror", "from a directory only"),
    ),
    "artifacts import": (
        ("toktier artifacts import bundle.tar.zst", "a bundle that was carried here"),
        ("toktier artifacts import ./tokenizer.json --as local/mine", "a file of your own, uncertified"),
    ),
    "artifacts export": (("toktier artifacts export qwen3_8b --out qwen3.tar.zst", "one file to carry"),),
    "artifacts kit": (
        ("toktier artifacts kit qwen3_8b --out kit --wheel toktier.whl", "all that a bare host needs"),
    ),
    "artifacts mirror": (("toktier artifacts mirror qwen3_8b --out /srv/mirror", "a tree to be served by any web server"),),
    "artifacts verify": (
        ("toktier artifacts verify", "every family of the cache"),
        ("toktier artifacts verify bundle.tar.zst", "a bundle, without extracting it"),
    ),
    "artifacts remove": (("toktier artifacts remove qwen3_8b", "free its space"),),
    "artifacts check-conversion": (("toktier artifacts check-conversion kimi_k3", "does its pin follow from upstream"),),
    "certify run": (
        ("toktier certify tokenizer.json --level quick", "compare it with the reference, and believe it here"),
        ("toktier certify qwen3_8b --shard 1/4 --out shard-1", "a quarter of a plan, for merge"),
    ),
    "certify merge": (("toktier certify merge shard-1 shard-2 shard-3 shard-4 --out whole", "one evidence of all shards"),),
    "certify verify": (("toktier certify verify evidence.json", "is this evidence sound, and does it hold here"),),
    "certify show": (("toktier certify show qwen3_8b", "what this host believes, and why"),),
    "certify forget": (("toktier certify forget tokenizer.json", "the reference serves it again"),),
    "certify replay": (("toktier certify replay failures/0001.json", "does it still differ"),),
    "certify diff": (("toktier certify diff old.json new.json", "what changed between two runs"),),
    "gpu compile": (
        ("toktier gpu compile --all-archs", "for every architecture, on a host without a device too"),
        ("toktier gpu compile qwen3_8b --arch sm_90", "for one, and whether a device can run that tokenizer"),
        ("toktier gpu compile --arch sm_90 --arch sm_100 --json", "for two of them, as JSON"),
        ("toktier gpu compile --arch sm_90 --accept-uncertified-jit", "with an NVRTC whose kernels are not listed"),
    ),
    "gpu list": (("toktier gpu list", "what was shipped and what was compiled here"),),
    "gpu clean": (("toktier gpu clean", "free its space"),),
    "session list": (
        ("toktier session list", "the sessions of the store that the settings name"),
        ("toktier session list --store /srv/chats --all --json", "of another one, with those that have no name, as JSON"),
    ),
    "session show": (("toktier session show chat-42", "tokens, revision and last use of one session"),),
    "session remove": (
        ("toktier session remove chat-42 chat-43", "two of them"),
        ("toktier session remove --anonymous", "all that only look-ups use"),
        ("toktier session remove -- -odd-name", "a name that looks like an option"),
    ),
    "session verify": (
        ("toktier session verify", "prove the whole store"),
        ("toktier session verify chat-42 --store /srv/chats", "one session"),
    ),
    "session compact": (("toktier session compact", "after many small appends, or after removing much"),),
    "serve run": (
        ("toktier serve --upstream http://127.0.0.1:8080 --family qwen3_8b", "in front of a llama-server on this host"),
        ("toktier serve --upstream http://127.0.0.1:8080 --tokenizer-file tokenizer.json --check", "are the upstreams fit for it"),
        ("toktier serve --config router.toml --port 9000", "options of a file, but for one"),
        ("toktier serve --config router.toml --show-config", "what holds, and who said it"),
        ("toktier serve --upstream http://gpu1:8080 --upstream http://gpu2:8080 --family qwen3_8b --host 0.0.0.0 --api-key-file keys.txt", "for other hosts, with keys"),
    ),
    "serve report": (
        ("toktier serve report pairs.jsonl", "how outputs with reuse differ from those without"),
        ("toktier serve report --records requests.db --measure minilm --json", "of recorded outputs, by meaning"),
        ("toktier serve report pairs.jsonl --per-pair --fail-on-substantive", "which of them, and exit code 1 if any does"),
    ),
    "config show": (("toktier config show --origin", "every setting, and who said it"),),
    "schema": (
        ("toktier schema", "names of all schemas"),
        ("toktier schema encode > encode.schema.json", "one of them"),
    ),
    "help": (("toktier help exit-codes", "what an exit code means"),),
    "completion": (
        ("toktier completion bash > ~/.local/share/bash-completion/completions/toktier", "bash"),
        ("toktier completion zsh > ~/.zfunc/_toktier", "zsh; with ~/.zfunc in fpath"),
        ("toktier completion fish > ~/.config/fish/completions/toktier.fish", "fish"),
    ),
}  # fmt: skip
