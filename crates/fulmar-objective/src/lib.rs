//! Losses with their gradients, group advantages, KL estimators and token drawing.
