/**
 * Faults for `npm run cuda -- planted`: each is one edit of a kernel, which a check of `fulmar-device` must find on the emulated GPU.
 * `from` is in `file` once.
 */

const of = (check) => (name, from, to) => ({ name, file: `${check}.cu`, from, to, check })
const [cast, log, norm, product, rows, swiglu] = [
  'cast',
  'log_prob',
  'rms_norm',
  'product_f32',
  'rows',
  'swiglu',
].map(of)

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
    '(vocab - round + BLOCK - 1) / BLOCK, HALF_WARPS)',
    '(vocab - round) / BLOCK, HALF_WARPS)',
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
  product(
    'a product begins before its tiles are loaded',
    'load(w, w_ok, out, outs, inner, first, depth);\n        __syncthreads();',
    'load(w, w_ok, out, outs, inner, first, depth);',
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
  product(
    'rows that are not there are read',
    'row + r < rows ? from[(size_t)(row + r) * inner + first + k] : 0.0f',
    'from[(size_t)(row + r) * inner + first + k]',
  ),
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
  cast('a tie is always rounded up', '(bits & 0x17fff) != 0', 'true'),
  cast('a NaN stays as it is', '(uint16_t)(bits >> 16 | 0x40)', '(uint16_t)(bits >> 16)'),
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
]
