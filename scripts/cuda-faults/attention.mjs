/** Faults of attention. */

import { barrier, of } from './fault.mjs'

const attention = of('attention')
const backward = of('attention_backward')
const attentionF32 = of('attention_f32')

export const ATTENTION_FAULTS = [
  attention(
    'keys are read before they are there',
    '            copies_wait<0>();\n            __syncthreads(); // keys are there',
    '            __syncthreads(); // keys are there',
  ),
  attention(
    'keys of other threads are read without a barrier',
    ...barrier('keys are there, and the values before them are read'),
  ),
  attention(
    'values are read before they are there',
    '            copies_wait<0>();\n            __syncthreads(); // values',
    '            __syncthreads(); // values',
  ),
  attention(
    'keys are overwritten while others read them',
    ...barrier('values are there, and the keys before the next ones are read'),
  ),
  attention(
    'rows of keys are read before they are found',
    'find(of, first, end);\n        __syncthreads();',
    'find(of, first, end);',
  ),
  attention('rows of a block take the place of those before', 'key / BLOCK % 2', '0'),
  attention('keys past the last are copied', 'return block + line < end ? ', 'return true ? '),
  attention(
    'queries past the last row are copied',
    'slots.is_there(slot) ? slots.head(slot) : ABSENT; }',
    'slots.head(slot); }',
  ),
  {
    ...attention(
      'fragments of queries are swapped',
      '(line + lane % 16) * STRIDE + e + lane / 16 * 8',
      '(line + lane / 2) * STRIDE + e + lane % 2 * 8',
    ),
    file: 'slots.cuh',
  },
  {
    ...attention(
      'fragments of keys are swapped',
      'load<false>(words, first + (line + lane % 8 + lane / 16 * 8) * STRIDE + e + lane / 8 % 2 * 8)',
      'load<false>(words, first + (line + lane % 8 + lane / 8 % 2 * 8) * STRIDE + e + lane / 16 * 8)',
    ),
    file: 'slots.cuh',
  },
  {
    ...attention(
      'fragments of values are swapped',
      'load<true>(words, first + (line + lane % 8 + lane / 8 % 2 * 8) * STRIDE + e + lane / 16 * 8)',
      'load<true>(words, first + (line + lane % 8 + lane / 16 * 8) * STRIDE + e + lane / 8 % 2 * 8)',
    ),
    file: 'slots.cuh',
  },
  {
    ...attention('columns of values are loaded as rows', 'load<true>(words', 'load<false>(words'),
    file: 'slots.cuh',
  },
  {
    ...attention(
      'weights of two slots are swapped',
      'words[1] = rounded_pair(a[2], a[3]);\n    words[2]',
      'words[2] = rounded_pair(a[2], a[3]);\n    words[1]',
    ),
    file: 'slots.cuh',
  },
  attention('a row attends to one key more', '< counts[slot] ? t * scale', '<= counts[slot] ? t * scale'),
  attention('a maximum is that of half its threads', 'max = fmaxf(max, __shfl_xor_sync(ALL, max, 2));', ''),
  attention(
    'the sum of weights is not rescaled',
    'sums.weights[slot] * down + weights',
    'sums.weights[slot] + weights',
  ),
  attention('an output is not rescaled', 'sums.out[e][slot * 2] *= down, ', ''),
  attention(
    'weights are those of half their threads',
    'sums.weights[slot] += __shfl_xor_sync(ALL, sums.weights[slot], 2);',
    '',
  ),
  attention('a segment has five blocks', 'SEGMENT = 256;', 'SEGMENT = 320;'),
  attention(
    'segments are not ended',
    'block + BLOCK < end && (block + BLOCK) % SEGMENT != 0',
    'block + BLOCK < end',
  ),
  attention(
    'a segment begins with the maximum of the one before',
    'sums.max[slot] = -INFINITY; // the next',
    '// the next',
  ),
  attention('m and L are written where there is no place', 'if (max_and_sum_nh2 && lane', 'if (lane'),
  attention('the first total is what memory held', 'is_first ? 0.0f : *total', '*total'),
  attention(
    'a segment that has ended is the last one',
    'key + SEGMENT >= keys.count',
    'key + SEGMENT > keys.count',
  ),
  attention('totals are not rescaled', 'return a * of_a + b * of_b;', 'return a + b * of_b;'),
  attention(
    'the maximum of a block without keys is subtracted',
    'base = max == -INFINITY ? 0.0f : max, down',
    'base = max, down',
  ),
  {
    ...attention(
      'slots are heads of other groups',
      '* kv_heads + kv_head) * group + ',
      '* kv_heads) * group + ',
    ),
    file: 'slots.cuh',
  },
  attention('a part begins with the first slot', 'blockIdx.y % parts * WARPS * SLOTS}', '0u}'),
  attention(
    'a part of a row begins with the first slot',
    'blockIdx.x / parts % kv_heads, part * SLOTS}',
    'blockIdx.x / parts % kv_heads, 0u}',
  ),
  attention('a block without keys of its row does not leave', 'if (first >= end) return;\n', ''),
  attention(
    'sums of a row begin behind the segments that it has',
    'size_t nhs = nh * segments;',
    'size_t nhs = nh * count;',
  ),
  attention(
    'a row has the segments of the longest one',
    'nhs < nh * segments + count',
    'nhs < nh * segments + segments',
  ),
  {
    ...attention(
      'lines of shared memory are not aligned, in attention',
      'STRIDE = WIDTH + 8;',
      'STRIDE = WIDTH + 4;',
    ),
    file: 'slots.cuh',
  },
  attention(
    'm and L of merged segments are not written',
    'if (max_and_sum_nh2 && e == 0)',
    'if (max_and_sum_nh2 && e > width)',
  ),
  attention(
    'm and L of merged segments are exchanged',
    '(max_and_sum_nh2 + 2 * nh) = {max, weights};',
    '(max_and_sum_nh2 + 2 * nh) = {weights, max};',
  ),
  backward(
    'keys of a stage are read before they are there',
    '        copies_wait<0>();\n        __syncthreads(); // this stage',
    '        __syncthreads(); // this stage',
  ),
  backward('keys of a stage are overwritten while others read them', ...barrier('this stage')),
  backward(
    'slots of a stage are read before they are there',
    '        copies_wait<0>();\n        __syncthreads(); // these slots',
    '        __syncthreads(); // these slots',
  ),
  backward('slots of a stage are overwritten while others read them', ...barrier('these slots')),
  backward(
    'rows of keys are copied before they are found',
    'find(SOME);\n    __syncthreads();',
    'find(SOME);',
  ),
  backward('rows of keys are found one stage late', 'find(block + 2 * SOME);', 'find(block + SOME);'),
  backward('an output times its gradient is that of another slot', 'along, own * 2)', 'along, own)'),
  backward(
    'elements of an output count twice',
    'half * 8; e < WIDTH; e += 16',
    'half * 8; e < WIDTH; e += 8',
  ),
  backward('half an output is left out', 'along += __shfl_xor_sync(ALL, along, 1);', ''),
  backward('a row has a gradient of one key more', '< counts[i / 2]', '<= counts[i / 2]'),
  backward('a slot weighs a key that it does not attend to', 's = is_seen ? p : 0.0f;', 's = p;'),
  backward(
    'a slot has a gradient of a key that it does not attend to',
    'd = is_seen ? p * (d - saved.along) : 0.0f;',
    'd = p * (d - saved.along);',
  ),
  backward('an output is left out of a gradient', '(d - saved.along)', '(d - 0.0f)'),
  backward('a weight is multiplied by its sum', '1.0f / found.y', 'found.y'),
  backward('gradients of keys are not scaled', 'd_keys[e][i * 2 + 1] * inverse_root', 'd_keys[e][i * 2 + 1]'),
  backward('the second elements are those of the first', 'd, q, column)', 'd, q, 0)'),
  backward(
    'slots of a stage are those of another',
    'STAGES * SLOTS_EACH + slot * 8',
    'STAGES * 0 + slot * 8',
  ),
  backward('the last keys of a tile are its first ones', 'seen.keys[key / 32]', 'seen.keys[0]'),
  backward(
    'masks of a tile are those of its first keys',
    'of.seen(first_key + i * 32)',
    'of.seen(first_key)',
  ),
  backward('a slot that is not there has what memory held', '        seen = {};\n', ''),
  backward('keys past the end of a block are written', 'first_key + line < end_key ?', 'true ?'),
  backward('slots past the last are copied', 'some + line < count ?', 'true ?'),
  attentionF32(
    'a tile of keys is overwritten while others read it',
    ...barrier('the tile before this one is read'),
  ),
  attentionF32(
    'weights are summed before they are there',
    '* scale - max); });\n        __syncthreads();',
    '* scale - max); });',
  ),
  attentionF32(
    'maxima are read before they are there',
    'maxima[threadIdx.x / WARP] = own;\n    __syncthreads();',
    'maxima[threadIdx.x / WARP] = own;',
  ),
  attentionF32(
    'an output is divided before its sum is there',
    '    }\n    __syncthreads();\n    if (e < width) out_nhe',
    '    }\n    if (e < width) out_nhe',
  ),
  attentionF32(
    'a maximum is that of a warp',
    'float max = maxima[0];',
    'return own;\n    float max = maxima[0];',
  ),
  attentionF32('a score is not fused', 'sum = __fmaf_rn(a[e], b[e], sum);', 'sum += a[e] * b[e];'),
  attentionF32(
    'the last column of a score is left out',
    'for (uint32_t e = 0; e < width; e++) sum',
    'for (uint32_t e = 0; e + 1 < width; e++) sum',
  ),
  attentionF32(
    'columns of a score are added from the last one on',
    'for (uint32_t e = 0; e < width; e++) sum',
    'for (uint32_t e = width; e-- > 0;) sum',
  ),
  attentionF32(
    'a score is scaled after its maximum',
    'width) * scale - max);',
    'width) * scale - max * 1.0000001f);',
  ),
  attentionF32('a tile has keys past the last', 'count = min(keys.count - first, TILE);', 'count = TILE;'),
  attentionF32(
    'weights are summed by 8 threads',
    'if (threadIdx.x < WIDTH)\n            for (uint32_t i = threadIdx.x; i < count; i += WIDTH)',
    'if (threadIdx.x < 8)\n            for (uint32_t i = threadIdx.x; i < count; i += 8)',
  ),
  attentionF32('an output is divided', 'out * (1.0f / *sum_of_row)', 'out / *sum_of_row'),
  attentionF32(
    'heads of a group are not neighbours',
    'blockIdx.y * group + (begin + query) % group;',
    'blockIdx.y + (begin + query) % group * kv_heads;',
  ),
  attentionF32(
    'an output is not fused',
    'out = __fmaf_rn(weights[i], head.value(i)[e], out);',
    'out += weights[i] * head.value(i)[e];',
  ),
  attentionF32(
    'a gradient of a query is not fused',
    'd_q = __fmaf_rn(d_scores[i], head.key(i)[e], d_q);',
    'd_q += d_scores[i] * head.key(i)[e];',
  ),
  attentionF32(
    'the last heads of a group have no gradient',
    'begin < rows * group; begin += QUERIES',
    'begin < rows; begin += QUERIES',
  ),
  attentionF32(
    'a gradient of a key is not fused',
    'd_keys[j] = __fmaf_rn(d_scores[query * KEYS + j], q, d_keys[j]);',
    'd_keys[j] += d_scores[query * KEYS + j] * q;',
  ),
  attentionF32(
    'a gradient of a value is not fused',
    'd_values[j] = __fmaf_rn(weights[query * KEYS + j], d_out, d_values[j]);',
    'd_values[j] += weights[query * KEYS + j] * d_out;',
  ),
  attentionF32(
    'rows that see a key after the first row of a tile are left out',
    'for (uint32_t r = 0; r < rows; r++) seen_by_any |= seen[r];',
    'seen_by_any = seen[0];',
  ),
  attentionF32(
    'a gradient of a query begins before its sums are there',
    '*along_of_row) * scale;\n        });\n        __syncthreads();',
    '*along_of_row) * scale;\n        });',
  ),
  attentionF32(
    'an output is multiplied before its gradient is there',
    'd_out[e] = d_out_nhe[nh * width + e];\n    __syncthreads();',
    'd_out[e] = d_out_nhe[nh * width + e];',
  ),
  attentionF32(
    'masks of rows are overwritten while others read them',
    ...barrier('the rows before these are read'),
  ),
  attentionF32(
    'masks of rows are read before they are there',
    '& ((1u << KEYS) - 1);\n        __syncthreads();',
    '& ((1u << KEYS) - 1);',
  ),
  attentionF32(
    'gradients of keys are added before their factors are there',
    '* scale : 0.0f;\n            }\n            __syncthreads();\n            for (uint32_t query = 0',
    '* scale : 0.0f;\n            }\n            for (uint32_t query = 0',
  ),
  attentionF32(
    'factors of queries are overwritten while others read them',
    ...barrier('the next queries take the place of these'),
  ),
  attentionF32(
    'a key that is not attended to has a weight',
    'weights[pair] = is_seen ? p : 0.0f;',
    'weights[pair] = p;',
  ),
  {
    ...attentionF32('a range that ends before some keys is seen', 'end <= first_row || ', ''),
    file: 'spans.cuh',
  },
  {
    ...attentionF32(
      'the first keys of a range are those of a tile',
      '(1ull << to) - (1ull << from)',
      '(1ull << to) - 1',
    ),
    file: 'spans.cuh',
  },
  {
    ...attentionF32('a range has one key more', '(1ull << to) - ', '(2ull << to) - '),
    file: 'spans.cuh',
  },
  attentionF32('keys past the end of a tile are written', 'if (first_key + j >= end_key) break;', ''),
  attentionF32(
    'a gradient of a key is that of one head of its group',
    '(size_t)(first + (begin + query) / group) * heads',
    '(size_t)(first + (begin + query) % group) * heads',
  ),
  attentionF32(
    'a weight in a gradient is that of a sum',
    'weight_of((s - max) - log_sum) * (d_weight',
    'weight_of((s - max) - log_sum * 1.000001f) * (d_weight',
  ),
  {
    ...attentionF32('a range begins one key late', 'ranges[middle].y <= index', 'ranges[middle].y < index'),
    file: 'spans.cuh',
  },
  {
    ...attentionF32(
      'a row has a range of the next one',
      'num_ranges = own.x - first;',
      'num_ranges = own.x - first + 1;',
    ),
    file: 'spans.cuh',
  },
  {
    ...attentionF32('a digit of the single logarithm', '0.40000972152f', '0.4000097f + 1e-5f'),
    file: 'libm.cuh',
  },
]
