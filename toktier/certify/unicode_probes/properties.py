"""Character sets of the reference's regular expressions: \\p{...}, \\s \\d \\w \\h, POSIX brackets.

The engine has two code paths, and they disagree: \\w and \\p{Word} hold six code points more when they stand alone than
inside a bracket, so everything is probed in both places. Not here: case folding.
"""

from __future__ import annotations

from dataclasses import dataclass

from toktier.certify.unicode_probes.sweep import ProbeError, Ranges, matched_by, members, parses

# Names of the engine, canonical name first. Blocks (In_...), ages and grapheme break properties are left out: patterns
# of tokenizers do not use them, and the compiler refuses a name that it does not find.
GENERAL_CATEGORIES = """
C Other|Cc Control Cntrl|Cf Format|Cn Unassigned|Co Private_Use|Cs Surrogate
L Letter|LC Cased_Letter|Ll Lowercase_Letter|Lm Modifier_Letter|Lo Other_Letter|Lt Titlecase_Letter|Lu Uppercase_Letter
M Mark Combining_Mark|Mc Spacing_Mark|Me Enclosing_Mark|Mn Nonspacing_Mark
N Number|Nd Decimal_Number|Nl Letter_Number|No Other_Number
P Punctuation|Pc Connector_Punctuation|Pd Dash_Punctuation|Pe Close_Punctuation|Pf Final_Punctuation
Pi Initial_Punctuation|Po Other_Punctuation|Ps Open_Punctuation
S Symbol|Sc Currency_Symbol|Sk Modifier_Symbol|Sm Math_Symbol|So Other_Symbol
Z Separator|Zl Line_Separator|Zp Paragraph_Separator|Zs Space_Separator
"""
SCRIPTS = """
Adlam Adlm|Ahom|Anatolian_Hieroglyphs Hluw|Arabic Arab|Armenian Armn|Avestan Avst|Balinese Bali|Bamum Bamu
Bassa_Vah Bass|Batak Batk|Bengali Beng|Bhaiksuki Bhks|Bopomofo Bopo|Brahmi Brah|Braille Brai|Buginese Bugi|Buhid Buhd
Canadian_Aboriginal Cans|Carian Cari|Caucasian_Albanian Aghb|Chakma Cakm|Cham|Cherokee Cher|Chorasmian Chrs
Common Zyyy|Coptic Copt Qaac|Cuneiform Xsux|Cypriot Cprt|Cypro_Minoan Cpmn|Cyrillic Cyrl|Deseret Dsrt|Devanagari Deva
Dives_Akuru Diak|Dogra Dogr|Duployan Dupl|Egyptian_Hieroglyphs Egyp|Elbasan Elba|Elymaic Elym|Ethiopic Ethi|Garay Gara
Georgian Geor|Glagolitic Glag|Gothic Goth|Grantha Gran|Greek Grek|Gujarati Gujr|Gunjala_Gondi Gong|Gurmukhi Guru
Gurung_Khema Gukh|Han Hani|Hangul Hang|Hanifi_Rohingya Rohg|Hanunoo Hano|Hatran Hatr|Hebrew Hebr|Hiragana Hira
Imperial_Aramaic Armi|Inherited Qaai Zinh|Inscriptional_Pahlavi Phli|Inscriptional_Parthian Prti|Javanese Java
Kaithi Kthi|Kannada Knda|Katakana Kana|Kawi|Kayah_Li Kali|Kharoshthi Khar|Khitan_Small_Script Kits|Khmer Khmr
Khojki Khoj|Khudawadi Sind|Kirat_Rai Krai|Lao Laoo|Latin Latn|Lepcha Lepc|Limbu Limb|Linear_A Lina|Linear_B Linb|Lisu
Lycian Lyci|Lydian Lydi|Mahajani Mahj|Makasar Maka|Malayalam Mlym|Mandaic Mand|Manichaean Mani|Marchen Marc
Masaram_Gondi Gonm|Medefaidrin Medf|Meetei_Mayek Mtei|Mende_Kikakui Mend|Meroitic_Cursive Merc
Meroitic_Hieroglyphs Mero|Miao Plrd|Modi|Mongolian Mong|Mro Mroo|Multani Mult|Myanmar Mymr|Nabataean Nbat
Nag_Mundari Nagm|Nandinagari Nand|New_Tai_Lue Talu|Newa|Nko Nkoo|Nushu Nshu|Nyiakeng_Puachue_Hmong Hmnp|Ogham Ogam
Ol_Chiki Olck|Ol_Onal Onao|Old_Hungarian Hung|Old_Italic Ital|Old_North_Arabian Narb|Old_Permic Perm|Old_Persian Xpeo
Old_Sogdian Sogo|Old_South_Arabian Sarb|Old_Turkic Orkh|Old_Uyghur Ougr|Oriya Orya|Osage Osge|Osmanya Osma
Pahawh_Hmong Hmng|Palmyrene Palm|Pau_Cin_Hau Pauc|Phags_Pa Phag|Phoenician Phnx|Psalter_Pahlavi Phlp|Rejang Rjng
Runic Runr|Samaritan Samr|Saurashtra Saur|Sharada Shrd|Shavian Shaw|Siddham Sidd|SignWriting Sgnw|Sinhala Sinh
Sogdian Sogd|Sora_Sompeng Sora|Soyombo Soyo|Sundanese Sund|Sunuwar Sunu|Syloti_Nagri Sylo|Syriac Syrc|Tagalog Tglg
Tagbanwa Tagb|Tai_Le Tale|Tai_Tham Lana|Tai_Viet Tavt|Takri Takr|Tamil Taml|Tangsa Tnsa|Tangut Tang|Telugu Telu
Thaana Thaa|Thai|Tibetan Tibt|Tifinagh Tfng|Tirhuta Tirh|Todhri Todr|Toto|Tulu_Tigalari Tutg|Ugaritic Ugar
Unknown Zzzz|Vai Vaii|Vithkuqi Vith|Wancho Wcho|Warang_Citi Wara|Yezidi Yezi|Yi Yiii|Zanabazar_Square Zanb
"""
BINARY_PROPERTIES = """
ASCII|Any|Assigned|ASCII_Hex_Digit AHex|Alphabetic Alpha|Bidi_Control Bidi_C|Case_Ignorable CI|Cased
Changes_When_Casefolded CWCF|Changes_When_Casemapped CWCM|Changes_When_Lowercased CWL|Changes_When_Titlecased CWT
Changes_When_Uppercased CWU|Dash|Default_Ignorable_Code_Point DI|Deprecated Dep|Diacritic Dia|Emoji
Emoji_Component EComp|Emoji_Modifier EMod|Emoji_Modifier_Base EBase|Emoji_Presentation EPres
Extended_Pictographic ExtPict|Extender Ext|Grapheme_Base Gr_Base|Grapheme_Extend Gr_Ext|Grapheme_Link Gr_Link
Hex_Digit Hex|Hyphen|ID_Compat_Math_Continue|ID_Compat_Math_Start|ID_Continue IDC|ID_Start IDS|IDS_Binary_Operator IDSB
IDS_Trinary_Operator IDST|IDS_Unary_Operator IDSU|Ideographic Ideo|InCB|Join_Control Join_C
Logical_Order_Exception LOE|Lowercase Lower|Math|Modifier_Combining_Mark MCM|Noncharacter_Code_Point NChar
Other_Alphabetic OAlpha|Other_Default_Ignorable_Code_Point ODI|Other_Grapheme_Extend OGr_Ext|Other_ID_Continue OIDC
Other_ID_Start OIDS|Other_Lowercase OLower|Other_Math OMath|Other_Uppercase OUpper|Pattern_Syntax Pat_Syn
Pattern_White_Space Pat_WS|Prepended_Concatenation_Mark PCM|Quotation_Mark QMark|Radical|Regional_Indicator RI
Sentence_Terminal STerm|Soft_Dotted SD|Terminal_Punctuation Term|Unified_Ideograph UIdeo|Uppercase Upper
Variation_Selector VS|White_Space WSpace Space|XID_Continue XIDC|XID_Start XIDS
Alnum|Blank|Digit|Graph|Print|Punct|Word|XDigit
"""
POSIX_BRACKETS = """
alnum alpha ascii blank cntrl digit graph lower print punct space upper word xdigit
"""
SHORTHANDS = "sdwh"


def lookup_name(name: str) -> str:
    """The name as the engine looks it up: case, blanks, `_` and `-` do not count."""
    return name.lower().replace(" ", "").replace("_", "").replace("-", "")


def known_names(text: str) -> list[list[str]]:
    """The groups of names for one set, without the names that the engine refuses."""
    groups = [entry.split() for line in text.split("\n") for entry in line.split("|")]
    known = [[name for name in group if parses(rf"\p{{{name}}}")] for group in groups]
    return [group for group in known if group]


def one_of_each(names: list[str], bracketed: bool) -> dict[str, Ranges]:
    """Sets that partition the scalar values, by a code of constant weight: each name gets its own four of the probes.

    Two names with one code point in common would give it more than four marks, a code point without name fewer: the
    partition itself is checked. 13 probes do for 715 names.
    """
    width = 13
    codes = [w for w in range(1 << width) if w.bit_count() == 4]
    if len(names) > len(codes):
        raise ProbeError(f"{len(names)} names, but the code has {len(codes)} words")
    name_of = dict(zip(codes, names, strict=False))
    marks = [0] * 0x110000
    for bit in range(width):
        union = [rf"\p{{{name}}}" for word, name in name_of.items() if word >> bit & 1]
        if union:
            for c in members(matched_by(f"[{''.join(union)}]" if bracketed else "|".join(union))):
                marks[c] |= 1 << bit
    out: dict[str, Ranges] = {name: [] for name in names}
    for c, mark in enumerate(marks):
        if 0xD800 <= c < 0xE000:
            continue
        if mark not in name_of:
            raise ProbeError(f"U+{c:04X} has not exactly one of the names {names[0]}, ..., {names[-1]}")
        ranges = out[name_of[mark]]
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1] = (ranges[-1][0], c)
        else:
            ranges.append((c, c))
    return out


def check_aliases(groups: list[list[str]]) -> None:
    """Every alias has the set of its canonical name: one pattern of all symmetric differences matches nothing."""
    differences = [rf"[\p{{{a}}}&&[^\p{{{b}}}]]|[\p{{{b}}}&&[^\p{{{a}}}]]" for b, *aliases in groups for a in aliases]
    found = matched_by("|".join(differences))
    if found:
        raise ProbeError(f"an alias differs from its property at U+{found[0][0]:04X}")


@dataclass(frozen=True)
class Properties:
    properties: dict[str, Ranges]  # canonical name → set inside brackets
    properties_alone: dict[str, Ranges]  # those that are another set outside of brackets
    names: dict[str, str]  # lookup name → canonical name, names that the engine knows
    shorthands: dict[str, Ranges]  # letter → set inside brackets
    shorthands_alone: dict[str, Ranges]
    posix: dict[str, Ranges]  # inside brackets; they stand nowhere else


def probe() -> Properties:
    categories, script_groups, binary = (known_names(text) for text in (GENERAL_CATEGORIES, SCRIPTS, BINARY_PROPERTIES))
    groups = categories + script_groups + binary
    check_aliases(groups)
    names = {lookup_name(name): known[0] for known in groups for name in known}

    scripts = [known[0] for known in script_groups]
    inside, outside = one_of_each(scripts, bracketed=True), one_of_each(scripts, bracketed=False)
    for name, *_ in groups:
        if name not in inside:
            inside[name] = matched_by(rf"[\p{{{name}}}]")
            outside[name] = matched_by(rf"\p{{{name}}}")
    shorthands = {letter: matched_by(rf"[\{letter}]") for letter in SHORTHANDS}
    shorthands_outside = {letter: matched_by(rf"\{letter}") for letter in SHORTHANDS}
    return Properties(
        properties={name: inside[name] for name, *_ in groups},
        properties_alone={name: r for name, r in outside.items() if r != inside[name]},
        names=dict(sorted(names.items())),
        shorthands=shorthands,
        shorthands_alone={letter: r for letter, r in shorthands_outside.items() if r != shorthands[letter]},
        posix={name: matched_by(f"[[:{name}:]]") for name in POSIX_BRACKETS.split() if parses(f"[[:{name}:]]")},
    )
