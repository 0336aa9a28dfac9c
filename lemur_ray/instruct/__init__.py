"""Instruction data: conversations from many places, checked, tokenised with their loss mask and packed into rows."""
