//! Text to token ids and back, behind one trait.
