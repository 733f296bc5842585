/** Maps from tensors to tensors, forests of rollouts, scores of tree search, and a batched tree search. */

export * from '../tree/index.js'
