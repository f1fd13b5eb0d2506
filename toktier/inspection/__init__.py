"""What people ask about tokenizers, answered from programs: long tables and differences. No id depends on it."""
