/** Rows of lazy stacks, for `LazyStack`; each topic is one call. */

import { Tensor } from 'fulmar'

const padded = (options) => (stack) => stack.get('a', { asPaddedTensor: true, ...options })

/** Applies an operation to a stack. */
export const RAGGED = {
  ragged_keys: (stack) => stack.keys(),
  ragged_batch_size: (stack) => stack.batchSize,
  ragged_batch_batch_size: (stack) => stack.batchSize,
  ragged_numel: (stack) => stack.batchSize.reduce((product, length) => product * length, 1),
  ragged_get_same: (stack) => stack.get('m'),
  ragged_get_ragged: (stack) => stack.get('a'),
  ragged_get_padded: padded({}),
  ragged_get_padded_val: padded({ paddingValue: -1 }),
  ragged_get_padded_left: padded({ paddingSide: 'left' }),
  ragged_get_list: (stack) => stack.get('a', { asList: true }),
  ragged_batch_get: (stack) => stack.get('a', { asList: true }),
  ragged_get_nested: (stack) => stack.get('a', { asNestedTensor: true }),
  ragged_index0: (stack) => stack.at(0),
  ragged_index_slice: (stack) => stack.at({ start: 1, stop: 3 }),
  ragged_index_list: (stack) => stack.at([2, 0]),
  ragged_index_mask: (stack) => stack.at([true, false, true]),
  ragged_index_oob: (stack) => stack.at(3),
  ragged_batch_index: (stack) => stack.at(1),
  ragged_batch_index2: (stack) => stack.at(1, 2),
  ragged_batch_reshape: (stack) => stack.dense().reshape([-1]),
  ragged_unsqueeze: (stack) => stack.at(null),
  ragged_unbind: (stack) => stack.parts,
  ragged_contiguous: (stack) => stack.dense(),
  ragged_to_tensordict: (stack) => stack.dense(),
  ragged_densify: (stack) => stack.densify(),
  ragged_select: (stack) => stack.select(['m']),
  ragged_apply: (stack) => stack.apply(plusOne),
  ragged_cat_lazy: (stack) => stack.cat(stack),
  ragged_stack_lazy: (stack) => stack.stack(stack),
  ragged_set_new: (stack) => stack.set('q', Tensor.zeros('f32', [3, 1])),
  ragged_set_bad: (stack) => stack.set('q', Tensor.zeros('f32', [2, 1])),
  ragged_set_item: (stack) => stack.setPart(0, stack.parts[0].zerosLike()),
  ragged_append: (stack) => stack.append(stack.parts[0]),
  ragged_insert: (stack) => stack.insert(1, stack.parts[0]),
}

function plusOne(tensor) {
  const numbers = Float64Array.from(tensor.data, (x) => Number(x) + 1)
  return Tensor.from(numbers, { shape: tensor.shape }).to(tensor.dtype)
}
