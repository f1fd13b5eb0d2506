"""Call shapes of other libraries on a toktier Tokenizer, for code that was written for them.

Each module is one library; none of them imports that library. Not here: any tokenizing, which is the Tokenizer's.
"""
