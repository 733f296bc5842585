//! Conversations to exact tokens and back: histories, renderers, and the token ledger.
