"""Instruction-tuning data: conversations are read, filtered, tokenised with a loss mask and packed into rows."""
