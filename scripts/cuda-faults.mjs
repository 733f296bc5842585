/**
 * Faults for `npm run cuda -- planted`: each is one edit of `folder`/`file`, where `from` is once. One of a kernel must be found by the
 * check of `fulmar-device` that has the kernel's name, on the emulated GPU; one of the emulator, by the emulator's own test.
 */

import { ATTENTION_FAULTS } from './cuda-faults/attention.mjs'
import { DRAW_FAULTS } from './cuda-faults/draw.mjs'
import { EMULATOR_FAULTS } from './cuda-faults/emulator.mjs'
import { barrier, of } from './cuda-faults/fault.mjs'

const [cast, embedding, heads, log, norm, optimizer, product, tensor, rows, swiglu] = [
  'cast',
  'embedding',
  'heads',
  'log_prob',
  'rms_norm',
  'optimizer',
  'product_f32',
  'product',
  'rows',
  'swiglu',
].map((check) => of(check))

export const FAULTS = [
  log(
    'a barrier before the maxima are read is left out',
    'if (lane == 0) maxima[half_warp] = own;\n        __syncthreads();',
    'if (lane == 0) maxima[half_warp] = own;',
  ),
  log(
    'a barrier before the sums are added is left out',
    'sums + half_warp, weighted + half_warp);\n        __syncthreads();',
    'sums + half_warp, weighted + half_warp);',
  ),
  log(
    'a barrier at the end of a round is left out',
    'sums_of_row.add(maxima[block], sums[block], weighted[block]);\n        __syncthreads();',
    'sums_of_row.add(maxima[block], sums[block], weighted[block]);',
  ),
  log(
    'a cluster does not wait before it reads sums',
    'sums[half_warp] = sum, weighted[half_warp] = weighted_sum;\n    cluster_sync();',
    'sums[half_warp] = sum, weighted[half_warp] = weighted_sum;',
  ),
  log(
    'a cluster does not wait before it reads maxima',
    'maxima[half_warp] = own_max;\n    cluster_sync();',
    'maxima[half_warp] = own_max;',
  ),
  log(
    'a block leaves while others read its shared memory',
    '    cluster_sync(); // a block stays',
    '    // a block stays',
  ),
  log(
    'a block does not wait for its logits',
    'x[at(v)] = logits_v[v];\n    }\n    __syncthreads();',
    'x[at(v)] = logits_v[v];\n    }',
  ),
  log(
    'the remainder of a block is not padded',
    'whole + lane < len ? x[whole + lane] : -INFINITY',
    'x[whole + lane]',
  ),
  log(
    'the remainder of a block is left out',
    'at < len; at += WIDTH) {\n        float shifted',
    'at + WIDTH <= len; at += WIDTH) {\n        float shifted',
  ),
  log('a base is one block late', 'before <= half_warp; before++', 'before < half_warp; before++'),
  log(
    'a base of a cluster is one block late',
    'before <= rank * per + half_warp; before++',
    'before < rank * per + half_warp; before++',
  ),
  log(
    'a last block that is not whole is left out',
    'max = larger(max, maxima[block]);\n        const uint32_t blocks = min((vocab - round + BLOCK - 1) / BLOCK',
    'max = larger(max, maxima[block]);\n        const uint32_t blocks = min((vocab - round) / BLOCK',
  ),
  log(
    'the chosen id is one off in a vector',
    'x.y = gradient.of(x.y, v + 1 == id)',
    'x.y = gradient.of(x.y, v + 2 == id)',
  ),
  log(
    'rows of four are read as vectors whatever their length',
    'if (vocab % 4 == 0) {\n        for (uint32_t v = threadIdx.x * 4',
    'if (vocab % 2 == 0) {\n        for (uint32_t v = threadIdx.x * 4',
  ),
  log(
    'the weighted sum is not rescaled',
    'weighted = scale * (weighted + total * down);',
    'weighted = scale * weighted;',
  ),
  log('the rest of an earlier round is forgotten', 'float base = max;', 'float base = -INFINITY;'),
  log(
    'the floor takes a NaN',
    'shifted < SOFTMAX_FLOOR ? SOFTMAX_FLOOR : shifted;',
    'shifted >= SOFTMAX_FLOOR ? shifted : SOFTMAX_FLOOR;',
  ),
  log(
    'a rank is taken for another',
    'block % per, block / per);\n    __syncthreads();\n    float base',
    'block / per % per, block / per);\n    __syncthreads();\n    float base',
  ),
  {
    ...log(
      'a digit of a coefficient',
      'float r = (x - n * 0.6933594f) - n * -2.1219444e-4f;',
      'float r = (x - n * 0.6933594f) - n * -2.121944e-4f;',
    ),
    file: 'lanes.cuh',
  },
  {
    ...log(
      'lanes are added neighbour to neighbour',
      'for (int width = WIDTH / 2; width > 0; width /= 2) sum += __shfl_down_sync(ALL, sum, width, WIDTH);',
      'for (int width = 1; width < (int)WIDTH; width *= 2) sum += __shfl_down_sync(ALL, sum, width, WIDTH);',
    ),
    file: 'lanes.cuh',
  },
  {
    ...log(
      'a maximum of half the lanes',
      'for (int width = WIDTH / 2; width > 0; width /= 2) max = fmaxf',
      'for (int width = WIDTH / 4; width > 0; width /= 2) max = fmaxf',
    ),
    file: 'lanes.cuh',
  },
  {
    ...log('a digit of the double logarithm', '2.222219843214978396e-01', '2.2222e-01'),
    file: 'libm.cuh',
  },
  {
    ...log('a digit of the double exponential', '6.61375632143793436117e-05', '6.6e-05'),
    file: 'libm.cuh',
  },
  log(
    'a softmax begins before its factor is there',
    'of_row[1] = (float)(1.0 / sums.total);\n    __syncthreads();',
    'of_row[1] = (float)(1.0 / sums.total);',
  ),
  log('a softmax divides in single precision', '(float)(1.0 / sums.total)', '1.0f / (float)sums.total'),
  log('a softmax has no floor', 'fmaxf(logits_v[v] - max, SOFTMAX_FLOOR)', 'logits_v[v] - max'),
  log('squares are summed before every maximum is there', ...barrier('every half-warp has its maximum')),
  log('squares are added before they are there', ...barrier('every half-warp has its sums')),
  log('squares are overwritten before they are added', ...barrier('they are added')),
  log('squares are products with their exponent', 'IS_SQUARE ? e * e : e * shifted', 'e * shifted'),
  log(
    'a row of -inf alone has a confidence',
    'max == -INFINITY ? NAN : found',
    'max == -INFINITY ? 0.0f : found',
  ),
  ...[
    ['a sum in order begins before its numbers are loaded', ...barrier('these are loaded')],
    [
      'numbers are overwritten before they are added',
      'total += (double)shared[at];\n        __syncthreads(); // they are added',
      'total += (double)shared[at];',
    ],
    ['numbers are added in single precision', 'double total = start;', 'float total = (float)start;'],
    [
      'the last number of a sum in order is left out',
      'at < min(len - first, THREADS); at++',
      'at + 1 < min(len - first, THREADS); at++',
    ],
  ].map((fault) => ({ ...log(...fault), file: 'lanes.cuh' })),
  log('a mean has the other sign', '0.0 - sum_in_order', '0.0 + sum_in_order'),
  log('the mean of no log-probs is NaN', 'rows == 0 ? 0.0 : total', 'total'),
  log('an entropy is a logarithm', 'Statistics(sums).entropy;', '(float)Statistics(sums).log_sum;'),
  log(
    'the likeliest have log-probs without the largest',
    '((double)logits_v[id] - (double)*max) - *log_sum',
    '(double)logits_v[id] - *log_sum',
  ),
  ...[
    ['a NaN is above all', 'if (x != x) return 0;', 'if (x != x) return ~0u;'],
    ['-0 is below 0', 'x == 0.0f ? 0 : __float_as_uint(x)', '__float_as_uint(x)'],
    ['negative numbers rise the other way', 'bits >> 31 ? ~bits', 'bits >> 31 ? bits'],
    ['bins are counted in before they are empty', ...barrier('all bins are empty')],
    ['bins are added before all is counted', ...barrier('all numbers are counted')],
    ['counts are summed before they are added', ...barrier('the counts of warps')],
    ['a digit is read before it is found', ...barrier('the digit is found')],
    ['a digit is that of the next smaller number', 'above + count >= k)', 'above + count > k)'],
    [
      'the counts of a warp are left out',
      'bin < HISTOGRAMS * BINS; bin += BINS)',
      'bin < (HISTOGRAMS - 1) * BINS; bin += BINS)',
    ],
    ['numbers with other first digits are counted', 'if ((bits & known) == bar.bits) atomicAdd', 'atomicAdd'],
    ['elements before a part are counted before all are there', ...barrier('all warps have counted')],
    [
      'elements of the part itself are before it',
      'warp < threadIdx.x / WARP; warp++',
      'warp <= threadIdx.x / WARP; warp++',
    ],
    ['a part has no end', 'at < part.end && is(at)', 'is(at)'],
    ['the likeliest are one too few', 'place + num_below(ballot) < k', 'place + num_below(ballot) + 1 < k'],
    ['ties go by any index', 'is_tie && place + num_below(ballot) < k', 'is_tie && len - 1 - at < k'],
    ['ranks are counted before the list is there', ...barrier('the list is there')],
    ['of equals the higher id comes first', '<< 32 | (uint32_t)~at', '<< 32 | at'],
    [
      'a list begins at the ranks of larger ones',
      'rank += list[other] > list[i]',
      'rank += list[other] >= list[i]',
    ],
  ].map((fault) => ({ ...log(...fault), file: 'select.cuh' })),
  optimizer(
    'a block of squares has no end',
    '(uint32_t)min(len - first, (uint64_t)BLOCK)',
    '(uint32_t)(len - first)',
  ),
  optimizer('the second half-warp sums the block of the first', 'pair + half_warp % 2, first', 'pair, first'),
  optimizer('half-warps skip blocks', 'pair += half_warps)', 'pair += 2 * half_warps)'),
  optimizer(
    'a block that is not there is written',
    'if (lane == 0 && block < blocks) sums_c',
    'if (lane == 0) sums_c',
  ),
  optimizer(
    'the sum of nothing is positive',
    '(-0.0, sums_c, blocks, (float*)shared)',
    '(0.0, sums_c, blocks, (float*)shared)',
  ),
  optimizer(
    'a master keeps a weight that was changed',
    'rounded(w[at]) != halves[at] ? widened(halves[at]) : w[at]',
    'w[at]',
  ),
  optimizer(
    'a master is lost',
    'rounded(w[at]) != halves[at] ? widened(halves[at]) : w[at]',
    'widened(halves[at])',
  ),
  optimizer('a weight is not rounded', '        halves[at] = rounded(x);\n', ''),
  optimizer(
    'a master is rounded',
    '        w[at] = x;\n        halves',
    '        w[at] = widened(rounded(x));\n        halves',
  ),
  optimizer(
    'gradients are not clipped',
    'w = weights.read(at), g = gradients[at] * gradient_scale;',
    'w = weights.read(at), g = gradients[at];',
  ),
  optimizer(
    'a first moment is a weighted sum',
    'm += (g - m) * (1.0f - beta1);',
    'm = m * beta1 + g * (1.0f - beta1);',
  ),
  optimizer(
    'a second moment is multiplied in another order',
    'g * g * (1.0f - beta2)',
    'g * (g * (1.0f - beta2))',
  ),
  optimizer('a second moment is not kept', '            moment2[at] = v;\n', ''),
  optimizer(
    'decay is multiplied in another order',
    'learning_rate * decay * w;',
    'learning_rate * (decay * w);',
  ),
  optimizer(
    'a step is multiplied in another order',
    'step_size * m / (sqrtf(v) * inv_sqrt_correction2 + eps)',
    'step_size * (m / (sqrtf(v) * inv_sqrt_correction2 + eps))',
  ),
  optimizer(
    'a root is corrected after its bound',
    '(sqrtf(v) * inv_sqrt_correction2 + eps)',
    '((sqrtf(v) + eps) * inv_sqrt_correction2)',
  ),
  optimizer(
    'weights decay before gradients are clipped',
    'gradients[at] * gradient_scale + decay * w;',
    '(gradients[at] + decay * w) * gradient_scale;',
  ),
  optimizer(
    'a step forgets that it is the first',
    'is_nesterov != 0, is_first != 0',
    'is_nesterov != 0, false',
  ),
  optimizer(
    'the first step is dampened',
    'take = is_first ? 1.0f : 1.0f - dampening',
    'take = 1.0f - dampening',
  ),
  optimizer('a step does not look ahead', 'is_nesterov ? g + momentum * b : b', 'b'),
  optimizer('a factor is read before it is there', ...barrier('the factor is there')),
  optimizer('a norm has no lower bound', 'fmaxf((float)sqrt(total), eps)', '(float)sqrt(total)'),
  optimizer('a matrix is divided', '*by = 1.0f / fmaxf(', '*by = 0.9999999f / fmaxf('),
  optimizer(
    'momentum is a weighted sum',
    'momentum[at] + (1.0f - keep) * (g - momentum[at])',
    'keep * momentum[at] + (1.0f - keep) * g',
  ),
  optimizer('momentum does not look ahead', 'is_nesterov ? g + keep * (b - g) : b', 'b'),
  optimizer('momentum is not kept', '        momentum[at] = b;\n', ''),
  optimizer('a buffer is not kept', '                buffer[at] = b;\n', ''),
  ...ATTENTION_FAULTS,
  product(
    'a product begins before its tiles are loaded',
    'load(w, w_ok, out, outs, inner, first, depth, w_is_turned);\n        __syncthreads();',
    'load(w, w_ok, out, outs, inner, first, depth, w_is_turned);',
  ),
  product(
    'a tile is overwritten while others read it',
    '        }\n        __syncthreads();\n    }\n#pragma unroll',
    '        }\n    }\n#pragma unroll',
  ),
  product(
    'the last inputs are not as many as a tile holds',
    'for (uint32_t k = 0; k < depth; k++)',
    'for (uint32_t k = 0; k < DEPTH; k++)',
  ),
  product(
    'a product is not fused',
    '__fmaf_rn(of_row[i], of_out[j], sums[i][j])',
    'of_row[i] * of_out[j] + sums[i][j]',
  ),
  product(
    'fragments of rows and outputs are swapped',
    'a = *(const float4*)(x + k * STRIDE + own_row), b = *(const float4*)(w + k * STRIDE + own_out)',
    'a = *(const float4*)(w + k * STRIDE + own_row), b = *(const float4*)(x + k * STRIDE + own_out)',
  ),
  product(
    'outputs past the last are written',
    'if (n >= rows || o >= outs) continue;',
    'if (n >= rows) continue;',
  ),
  product('a stride is no multiple of a vector', 'STRIDE = TILE + EACH', 'STRIDE = TILE + 1'),
  product('rows that are not there are read', 'row + r < rows ? from[place] : 0.0f', 'from[place]'),
  product(
    'a turned matrix is read as it is',
    'place = is_turned ? ',
    'place = is_turned && rows == inner ? ',
  ),
  product(
    'a turned matrix has the width of another',
    '(size_t)(first + k) * rows +',
    '(size_t)(first + k) * inner +',
  ),
  product('the other operand is turned', 'depth, x_is_turned);', 'depth, w_is_turned);'),
  tensor(
    'a stage is read before its copies are waited for',
    '        copies_wait<STAGES - 2>();\n        __syncthreads();',
    '        __syncthreads();',
  ),
  tensor('a wait leaves one stage too many', 'copies_wait<STAGES - 2>();', 'copies_wait<STAGES - 1>();'),
  tensor(
    'a stage is overwritten while others read it, in bfloat16',
    'begin((turn + STAGES - 1) % STAGES, k + (STAGES - 1) * DEPTH);',
    'begin((turn + STAGES) % STAGES, k + (STAGES - 1) * DEPTH);',
  ),
  tensor('copies of others are read without a barrier, in bfloat16', ...barrier('this stage')),
  tensor(
    'a warp reads copies of its lanes without a barrier',
    '        copies_wait<FEW_STAGES - 2>();\n        __syncwarp();',
    '        copies_wait<FEW_STAGES - 2>();',
  ),
  tensor(
    'a warp does not wait for its stage',
    'copies_wait<FEW_STAGES - 2>();',
    'copies_wait<FEW_STAGES - 1>();',
  ),
  tensor(
    'fragments of two groups of rows are swapped',
    '{{words[0], words[1]}, {words[2], words[3]}}',
    '{{words[2], words[3]}, {words[0], words[1]}}',
  ),
  tensor(
    'outputs and inputs of the left operand are swapped',
    'tile + place(row + low, k + high, r)',
    'tile + place(row + high, k + low, r)',
  ),
  tensor(
    'rows and inputs of the right operand are swapped',
    'tile + place(row + high, k + low, r)',
    'tile + place(row + low, k + high, r)',
  ),
  tensor(
    'columns of the left operand are loaded as rows',
    'load_matrices<IS_COLUMNS>(words, tile + place(row + low, k + high, r))',
    'load_matrices(words, tile + place(row + low, k + high, r))',
  ),
  tensor(
    'columns of the right operand are loaded as rows',
    'load_matrices<IS_COLUMNS>(words, tile + place(row + high, k + low, r))',
    'load_matrices(words, tile + place(row + high, k + low, r))',
  ),
  tensor('a column is taken for a row', '(k + r) * STRIDE + row :', '(row + r) * STRIDE + k :'),
  tensor('lines of columns begin elsewhere', '(IS_COLUMNS ? k : first) + line', 'first + line'),
  tensor(
    'rows and outputs of a result are swapped',
    'const uint32_t n = first_row + own_row + r * 8 + pair + i % 2;',
    'const uint32_t n = first_row + own_row + r * 8 + pair + i / 2;',
  ),
  tensor('parts are shorter', 'max(512u,', 'max(256u,'),
  tensor('parts are not ended', 'if (k > 0 && k % part_len == 0) end_part();', ''),
  tensor(
    'parts are added from the last on',
    'for (uint32_t p = 0; p * part_len < inner; p++) total += sums[p * SUMS',
    'for (uint32_t p = (inner - 1) / part_len; p != ~0u; p--) total += sums[p * SUMS',
  ),
  tensor(
    'parts are added before they are there',
    '    __syncthreads();\n    if (threadIdx.x >= SUMS)',
    '    if (threadIdx.x >= SUMS)',
  ),
  tensor(
    'elements past the end of a line are copied',
    'const bool is_there = line < lines && at < len;',
    'const bool is_there = line < lines;',
  ),
  tensor(
    'lines past the last are copied',
    'const bool is_there = line < lines && at < len;',
    'const bool is_there = at < len;',
  ),
  tensor(
    'elements past the end of a line are not zeros',
    'at + i < len ? from[i] : (uint16_t)0',
    'at + i < len ? from[i] : (uint16_t)0x3f80',
  ),
  tensor(
    'lines of any start are copied by vectors',
    'is_wide(((uintptr_t)first | len * 2) % 16 == 0)',
    'is_wide(len * 2 % 16 == 0)',
  ),
  tensor(
    'lines of any length are copied by vectors',
    'is_wide(((uintptr_t)first | len * 2) % 16 == 0)',
    'is_wide((uintptr_t)first % 16 == 0)',
  ),
  tensor('a step too few', '(min(inner - k, DEPTH) + STEP - 1) / STEP', 'min(inner - k, DEPTH) / STEP'),
  tensor(
    'outputs past the last are written, in bfloat16',
    'if (o >= outs || n >= rows) return;',
    'if (n >= rows) return;',
  ),
  tensor('a bias is left out', 'bias_o == nullptr ? sum : sum + bias_o[o]', 'sum'),
  tensor('a bias is that of the next output', 'sum + bias_o[o]', 'sum + bias_o[o ^ 1]'),
  tensor(
    'blocks of a second product are counted from the first one on',
    'block -= first.blocks(outs_each);',
    '',
  ),
  tensor(
    'blocks of a third product are counted from the second one on',
    'block -= second.blocks(outs_each);',
    '',
  ),
  tensor('a block that is not whole is left out', '(outs + outs_each - 1) / outs_each', 'outs / outs_each'),
  tensor('a gate is taken for what it multiplies', 'if (line / EACH % 2 == 0)', 'if (line / EACH % 2 != 0)'),
  tensor('lines of two weights are taken in turn', 'line / (2 * EACH) * EACH + line % EACH', 'line / 2'),
  tensor(
    'a gate is rounded before its activation',
    '::put(act_ni + at, gated(gate, up));',
    '::put(act_ni + at, gated(widened(rounded(gate)), up));',
  ),
  tensor(
    'a gate is written to the place of what it multiplies',
    'gate_ni[at] = gate, up_ni[at] = up;',
    'gate_ni[at] = up, up_ni[at] = gate;',
  ),
  tensor(
    'an activation past the last is written',
    'if (i >= width || n >= rows) return;',
    'if (n >= rows) return;',
  ),
  tensor('an activation of many rows is in another place', 'o / 32 * 16 + o % 32', 'o / 2'),
  tensor(
    'an activation of few rows is multiplied by the next gate',
    '__shfl_down_sync(ALL, sum, EACH)',
    '__shfl_down_sync(ALL, sum, 1)',
  ),
  {
    ...swiglu(
      'an activation has its factors in another order',
      'g / (1.0f + exp32(-g)) * u',
      'u / (1.0f + exp32(-g)) * g',
    ),
    file: 'swiglu.cuh',
  },
  tensor('a line of shared memory is not aligned', 'STRIDE = LEN + 8;', 'STRIDE = LEN + 4;'),
  norm(
    'a sum begins before its row is loaded',
    '    __syncthreads();\n    if (threadIdx.x < 32)',
    '    if (threadIdx.x < 32)',
  ),
  norm(
    'a row is scaled before its sum is there',
    '    __syncthreads();\n    const float scale',
    '    const float scale',
  ),
  norm('rows of any even width are read as vectors', 'width % 4 == 0', 'width % 2 == 0'),
  norm(
    'the other half-warp writes the sum',
    'if (threadIdx.x == 0) *inv_rms',
    'if (threadIdx.x == 1) *inv_rms',
  ),
  norm('a weight comes before the scale', 'x[d] * scale * weight_d[d]', 'x[d] * weight_d[d] * scale'),
  {
    ...norm(
      'the remainder of a sum is left out',
      'whole + lane < len ? a[whole + lane] * b[whole + lane] : 0.0f',
      '0.0f',
    ),
    file: 'lanes.cuh',
  },
  {
    ...swiglu(
      'the exponential has no upper end',
      'return x > 88.37f ? __uint_as_float(0x7f800000u) : value;',
      'return value;',
    ),
    file: 'lanes.cuh',
  },
  {
    ...swiglu(
      'a digit of the logarithm of two',
      '(clamped - n * 0.6933594f) - n * -2.1219444e-4f',
      '(clamped - n * 0.6933594f) - n * -2.121944e-4f',
    ),
    file: 'lanes.cuh',
  },
  swiglu(
    'a gradient overwrites a gate before it is read',
    'up[at] = d * silu;',
    'up[at] = d * (gate[at] * sigma);',
  ),
  swiglu(
    'a gradient has its factors in another order',
    'd * u * (sigma * (1.0f + g * (1.0f - sigma)))',
    'd * (u * sigma) * (1.0f + g * (1.0f - sigma))',
  ),
  { ...cast('a tie is always rounded up', '(bits & 0x17fff) != 0', 'true'), file: 'bf16.cuh' },
  {
    ...cast('a NaN stays as it is', '(uint16_t)(bits >> 16 | 0x40)', '(uint16_t)(bits >> 16)'),
    file: 'bf16.cuh',
  },
  {
    ...cast('a tie of halves is always rounded up', '+ 0xfff + (magnitude >> 13 & 1)', '+ 0x1000'),
    file: 'f16.cuh',
  },
  { ...cast('a half is cut off', '+ 0xfff + (magnitude >> 13 & 1)', ''), file: 'f16.cuh' },
  {
    ...cast(
      'halves have no subnormal numbers',
      'if (magnitude < 0x38800000) return',
      'if (magnitude < 0x38000000) return',
    ),
    file: 'f16.cuh',
  },
  { ...cast('a large half is no infinity', 'min(nearest, 0x7c00u)', 'nearest'), file: 'f16.cuh' },
  {
    ...cast(
      'a half that is NaN is infinite',
      '0x7e00 | (magnitude >> 13 & 0x3ff)',
      '0x7c00 | (magnitude >> 13 & 0x3ff)',
    ),
    file: 'f16.cuh',
  },
  {
    ...cast(
      'a negative half of 0 has no sign',
      'sign | __float_as_uint((float)magnitude',
      '__float_as_uint((float)magnitude',
    ),
    file: 'f16.cuh',
  },
  { ...cast('the least halves are normal', 'magnitude < 0x400', 'magnitude < 0x200'), file: 'f16.cuh' },
  {
    ...norm('bfloat16 is cut off', '*to = rounded(x);', '*to = (uint16_t)(__float_as_uint(x) >> 16);'),
    file: 'bf16.cuh',
  },
  norm(
    'a sum of two rows is not written',
    'x[d] = x_nd[first + d] = x_nd[first + d]',
    'x[d] = x_nd[first + d]',
  ),
  norm(
    'a gradient begins before its products are there',
    '    __syncthreads();\n    if (threadIdx.x == 0) {',
    '    if (threadIdx.x == 0) {',
  ),
  norm(
    'a gradient is pulled before its sum is there',
    '    __syncthreads();\n    const float pull =',
    '    const float pull =',
  ),
  norm(
    'products of a gradient are multiplied in another order',
    'x[d] * weight_d[d] * d_out[d]',
    'x[d] * (weight_d[d] * d_out[d])',
  ),
  norm('a gradient overwrites what was there', 'd_x_nd[first + d] += ', 'd_x_nd[first + d] = '),
  norm(
    'a cube is multiplied first',
    'along * inv_rms * inv_rms * inv_rms / (float)width',
    'along * (inv_rms * inv_rms * inv_rms) / (float)width',
  ),
  norm(
    'the last rows of a chunk are left out',
    'row < min(first + rows_each, rows)',
    'row + 1 < min(first + rows_each, rows)',
  ),
  norm('an infinite scale is taken for a number', 'inv_rms > 0.0f && inv_rms < INFINITY', 'inv_rms > 0.0f'),
  norm('a scale of 0 is taken for a number', 'inv_rms > 0.0f && inv_rms < INFINITY', 'inv_rms < INFINITY'),
  norm('a chunk has no end', 'row < min(first + rows_each, rows)', 'row < rows'),
  norm(
    'a chunk of sums takes the place of another',
    '(size_t)blockIdx.y * width + d] = sum',
    '(size_t)(blockIdx.y / 2) * width + d] = sum',
  ),
  norm(
    'chunks are added from the last on',
    'for (uint32_t c = 0; c < chunks; c++)',
    'for (uint32_t c = chunks - 1; c != ~0u; c--)',
  ),
  heads(
    'the bias of the next column',
    'x_nd[at] += bias_d[at % width];',
    'x_nd[at] += bias_d[(at + 1) % width];',
  ),
  heads(
    'a head is normalised before it is loaded',
    '        __syncwarp();\n        const float* norm_e = sizes.is_query(head) ? q_norm_e : k_norm_e;\n        if (norm_e &&',
    '        const float* norm_e = sizes.is_query(head) ? q_norm_e : k_norm_e;\n        if (norm_e &&',
  ),
  heads(
    'a head is rotated before it is normalised',
    'own[e] = own[e] * scale * norm_e[e];\n            __syncwarp();',
    'own[e] = own[e] * scale * norm_e[e];',
  ),
  heads(
    'a head takes the place of one that is read',
    '            rotate(own, cos, 1.0f, width / 2, to);\n        }\n        __syncwarp();',
    '            rotate(own, cos, 1.0f, width / 2, to);\n        }\n       ',
  ),
  heads('values are normalised too', 'if (norm_e && !sizes.is_value(head))', 'if (norm_e)'),
  heads(
    'a bias is not left in x',
    'if (bias_w) x[e] += bias_w[head * width + e];\n            own[e] = x[e];',
    'own[e] = bias_w ? x[e] + bias_w[head * width + e] : x[e];',
  ),
  heads(
    'keys have the bias of queries',
    'bias_w[head * width + e]',
    'bias_w[head % sizes.heads * width + e]',
  ),
  heads(
    'keys have the norm of queries',
    'const float* norm_e = sizes.is_query(head) ? q_norm_e : k_norm_e;\n        if (norm_e &&',
    'const float* norm_e = q_norm_e;\n        if (norm_e &&',
  ),
  heads('halves are rotated the other way', 'a * c - b * s);', 'a * c + b * s);'),
  heads(
    'a rotation takes its own result',
    'put(to + half + i, b * c + a * s);',
    'put(to + half + i, b * c + number(to[i]) * s);',
  ),
  heads(
    'a row of the batch is taken for one of the cache',
    'values_rke + ((size_t)rows_n[n] * sizes',
    'values_rke + ((size_t)n * sizes',
  ),
  heads(
    'a position is taken for another',
    'float* own = (float*)shared + warp * width;\n    const float* cos = table_pe + (size_t)positions_n[n] * width;',
    'float* own = (float*)shared + warp * width;\n    const float* cos = table_pe + (size_t)n * width;',
  ),
  heads(
    'gradients are rotated forward',
    'rotate(d, cos, -1.0f, width / 2, own);',
    'rotate(d, cos, 1.0f, width / 2, own);',
  ),
  heads(
    'a gradient of a norm begins before its head is rotated',
    '        rotate(d, cos, -1.0f, width / 2, own);\n        __syncwarp();',
    '        rotate(d, cos, -1.0f, width / 2, own);',
  ),
  heads(
    'products of a head are summed before they are there',
    '            products[e] = x[e] * norm_e[e] * own[e];\n        }\n        __syncwarp();',
    '            products[e] = x[e] * norm_e[e] * own[e];\n        }',
  ),
  heads(
    'a sum of products is not a chain',
    'for (uint32_t e = 0; e < width; e++) along += products[e];',
    'for (uint32_t e = width; e > 0; e--) along += products[e - 1];',
  ),
  heads('a rotated gradient is not written', '            d[e] = own[e];\n', ''),
  heads('a gradient of zeros has a sign', '0.0f + (norm_e[e] * own[e]', '(norm_e[e] * own[e]'),
  heads(
    'chunks of a bias have no end',
    'row < min(first + rows_each, rows); row++) sum +=',
    'row < rows; row++) sum +=',
  ),
  heads('heads of a weight begin elsewhere', 'head = first_head + row % count', 'head = row % count'),
  embedding('a table of any start is read as vectors', ' && (uintptr_t)table_vd % (4 * sizeof(T)) == 0', ''),
  embedding('rows of any even length are read as vectors', 'width % 4 == 0', 'width % 2 == 0'),
  embedding(
    'halves of a vector are swapped',
    'widened(bits.x), widened(bits.y)',
    'widened(bits.y), widened(bits.x)',
  ),
  rows('a mix takes all of y', 'a * x[at] + b * y[at]', 'a * x[at] + y[at]'),
  rows(
    'a row of indices is taken for another',
    'index_n[blockIdx.x] * width;\n    T* to =',
    'index_n[blockIdx.x + 1] * width;\n    T* to =',
  ),
  rows(
    'the last element of a row stays',
    'at < width; at += THREADS) row[at] = from[at];',
    'at + 1 < width; at += THREADS) row[at] = from[at];',
  ),
  rows('an infinity is taken for a number', '& 0x7f800000) != 0x7f800000', '& 0x7fffffff) <= 0x7f800000'),
  rows(
    'the last number that is not finite is taken',
    '        atomicMin(first, (uint32_t)at);\n        break;',
    '        *first = (uint32_t)at;',
  ),
  rows(
    'blocks take the same elements again',
    'at < len; at += (uint64_t)gridDim.x * THREADS) x[at] *= by;',
    'at < len; at += THREADS) x[at] *= by;',
  ),
  rows(
    'rows of an index begin at its end',
    'blockIdx.x == 0 ? 0 : ends_u[blockIdx.x - 1]',
    'blockIdx.x == 0 ? 0 : ends_u[blockIdx.x] - 1',
  ),
  rows('a sum of rows forgets what was there', 'float sum = row[at];', 'float sum = 0.0f;'),
  rows(
    'rows of an index are added from the last on',
    'for (uint32_t n = first; n < end; n++) sum +=',
    'for (uint32_t n = end - 1; n + 1 > first; n--) sum +=',
  ),
  rows('a number of a plan is taken for a row', '(size_t)rows_n[n] * width + at', '(size_t)n * width + at'),
  rows('the upper half of a value is lost', 'to[at] = value;', 'to[at] = (uint32_t)value;'),
  rows('one element too many is filled', 'to[at] = value;', 'to[at] = to[at + 1] = value;'),
  ...DRAW_FAULTS,
  ...EMULATOR_FAULTS,
]
