/** Faults of draws. */

import { of } from './fault.mjs'

const draw = of('draw')

export const DRAW_FAULTS = [
  ...[
    [
      'biases are added before scores are there',
      '    __syncthreads(); // all scores are there',
      '    // all scores are there',
    ],
    [
      'penalties are subtracted before biases are added',
      '    __syncthreads(); // biases are added',
      '    // biases are added',
    ],
    [
      'maxima are compared before they are there',
      '    __syncthreads(); // every block has its maximum',
      '    // every block has its maximum',
    ],
    [
      'sums are taken before maxima are compared',
      '    __syncthreads(); // every block has the maximum so far',
      '    // every block has the maximum so far',
    ],
    [
      'sums are added before they are there',
      '    __syncthreads(); // every block has its sum',
      '    // every block has its sum',
    ],
    [
      'sums of a cut are added before they are there',
      '    __syncthreads(); // every block of a cut has its sum',
      '    // every block of a cut has its sum',
    ],
    [
      'a block is read before it is found',
      '    __syncthreads(); // the block is found',
      '    // the block is found',
    ],
    [
      'weights of a block are summed before they are there',
      '    __syncthreads(); // its weights are there',
      '    // its weights are there',
    ],
    [
      'ids of a cut are read before they are there',
      '    __syncthreads(); // the list of ids is there',
      '    // the list of ids is there',
    ],
    [
      'the largest is found before it has a start',
      '    __syncthreads(); // nothing is found yet',
      '    // nothing is found yet',
    ],
    [
      'the largest is read before it is found',
      '    __syncthreads(); // the largest is found',
      '    // the largest is found',
    ],
    [
      'the likeliest is read before it is found',
      '        __syncthreads(); // the likeliest is found',
      '        // the likeliest is found',
    ],
    ['a mask is that of another word', 'mask_w[v / 32] >> v % 32', 'mask_w[v / 32] >> v % 16'],
    [
      'a row has the mask of its number',
      '(size_t)mask * ((vocab + 31) / 32)',
      '(size_t)row * ((vocab + 31) / 32)',
    ],
    [
      'items of a row begin at its end',
      'first(row == 0 ? 0 : ends_n[row - 1])',
      'first(row == 0 ? 0 : ends_n[row])',
    ],
    [
      'biases of an id are added by several threads',
      '|| (item > bias.first && bias_ids[item - 1] == id)',
      '',
    ],
    [
      'biases of an id are added at once',
      'score = bounded((double)score + biases[next]);',
      'score = (float)((double)score + biases[next]);',
    ],
    [
      'a bias is added in single precision',
      'bounded((double)score + biases[next])',
      'bounded((double)(score + (float)biases[next]))',
    ],
    ['a bias saves a banned token', 'if (score == -INFINITY || (item', 'if ((item'],
    [
      'a penalty saves a banned token',
      '        if (score == -INFINITY) continue;\n        const float repeated',
      '        const float repeated',
    ],
    ['negative scores are divided', 'score < 0.0f ? score * repetition', 'score < 0.0f ? score / repetition'],
    ['tokens of the prompt have a presence', 'count > 0 ? presence : 0.0f', 'presence'],
    ['a frequency counts once', 'frequency * (float)count', 'frequency'],
    [
      'differences of scores overflow',
      '(0.5f * x - 0.5f * base) * twice_inverse',
      '(x - base) * (0.5f * twice_inverse)',
    ],
    ['a factor has no bound', 'fminf((float)(2.0 / temperature), LARGEST)', '(float)(2.0 / temperature)'],
    [
      'the least weight is not kept',
      '(double)list.weights[place] < cuts.min_p()',
      '(double)list.weights[place] <= cuts.min_p()',
    ],
    [
      'a sum is not rescaled',
      'if (max > before && total > 0.0) total *= exp64',
      'if (max > before && total > 1e300) total *= exp64',
    ],
    [
      'blocks are weighed against their own maximum',
      'sum += softmax.weight(list.at(first + at), base);',
      'sum += softmax.weight(list.at(first + at), softmax.max);',
    ],
    [
      'masses are not scaled down',
      'shared.sums[block] * exp64(softmax.shifted(shared.maxima[block]))',
      'shared.sums[block]',
    ],
    ['a rest is not less the block before', '        rest -= mass;\n', ''],
    [
      'a sum of a cut is single',
      '        double sum = 0.0, all = 0.0;\n        for (uint32_t at = lane; at < whole',
      '        float sum = 0.0f; double all = 0.0;\n        for (uint32_t at = lane; at < whole',
    ],
    [
      'the remainder of a cut is left out',
      'for (uint32_t at = whole; at < len; at++) all',
      'for (uint32_t at = whole; at + 1 < len; at++) all',
    ],
    [
      'the mass of blocks before is forgotten',
      '    *shared.mass = mass, *shared.target = target',
      '    *shared.mass = 0.0, *shared.target = target',
    ],
    ['an id without weight is taken', '        if (!(weight > 0.0f)) continue;\n', ''],
    ['a place of a cut is taken for an id', '*id = list.id(first + last);', '*id = first + last;'],
    [
      'ids of a cut follow those of all warps',
      'if (ballot >> threadIdx.x % WARP & 1) ids[place + num_below(ballot)]',
      'if (ballot >> threadIdx.x % WARP & 1) ids[place + threadIdx.x % WARP]',
    ],
    ['a row with a NaN is drawn from', 'if (*shared.is_bad || largest', 'if (largest'],
    ['a row of -inf alone is drawn from', 'largest <= rising(-INFINITY)', 'largest < rising(-INFINITY)'],
    ['an infinite row is drawn from', 'largest >= rising(INFINITY)', 'largest > rising(INFINITY)'],
    [
      'the likeliest is the last of equals',
      'if (rising(all.x[v]) == largest) atomicMin(shared.found, v);',
      'if (rising(all.x[v]) == largest) *shared.found = v;',
    ],
    ['a word is not in the middle of its range', '((double)words_n[row] + 0.5)', '((double)words_n[row])'],
    [
      'a row has the word of its neighbour',
      '(double)words_n[row]',
      '(double)words_n[row == 0 ? 0 : row - 1]',
    ],
    ['the least score is not lowered', '(log_least - 1e-3)', 'log_least'],
  ].map((fault) => draw(...fault)),
  ...[
    [
      'a cut begins before weights are there',
      '    __syncthreads(); // weights of the list',
      '    // weights of the list',
    ],
    ['a sum of a cut begins before min_p', '    __syncthreads(); // what stays', '    // what stays'],
    ['all that tie with the end are kept', '(score == end.key && place <= end.place)', 'score == end.key'],
    ['the unlikely have more than their mass', '* *shared.total / (double)all.len;', '* *shared.total;'],
    [
      'a mass of the largest is one of all',
      'sum_weights(shared, list, softmax);\n        return list;',
      'sum_weights(shared, all, softmax);\n        return list;',
    ],
    [
      'a row has the cuts of its neighbour',
      'cuts_n6 + (size_t)row * 6',
      'cuts_n6 + (size_t)(row == 0 ? 0 : row - 1) * 6',
    ],
    [
      'a total is read before it is there',
      '    __syncthreads(); // the total of a cut',
      '    // the total of a cut',
    ],
    [
      'parts of an entropy are added before they are there',
      '    __syncthreads(); // every block has its part',
      '    // every block has its part',
    ],
    [
      'a cut by places begins before they are there',
      '    __syncthreads(); // places of all',
      '    // places of all',
    ],
    [
      'the typical are summed before they are found',
      '    __syncthreads(); // what is typical',
      '    // what is typical',
    ],
    [
      'the probable are summed before they are found',
      '    __syncthreads(); // what is probable',
      '    // what is probable',
    ],
    [
      'the likeliest are summed before they are in order',
      '    __syncthreads(); // the likeliest are in order',
      '    // the likeliest are in order',
    ],
    [
      'a share of an entropy is read before it is found',
      '    __syncthreads(); // the share of the entropy',
      '    // the share of the entropy',
    ],
    [
      'ids are copied before they are in order',
      '    __syncthreads(); // ids are in order',
      '    // ids are in order',
    ],
    [
      'a list is read before it is in order of its ids',
      '    __syncthreads(); // the list is in order',
      '    // the list is in order',
    ],
    ['an entropy has lost its sign', 'return -sum / total;', 'return sum / total;'],
    [
      'dropped tokens are in an entropy',
      'sum += weight > 0.0f ? (double)weight',
      'sum += true ? (double)weight',
    ],
    ['the least typical are kept', 'return -fminf((float)fabs', 'return fminf((float)fabs'],
    [
      'of those that tie with the last typical one some are dropped',
      '!(nearness(place) >= end.key)',
      '!(nearness(place) > end.key || place == end.place)',
    ],
    ['the likeliest is dropped as improbable', ' && rising(list.at(place)) < largest) list', ') list'],
    ['a dropped token is the likeliest', 'list.weights[place] > 0.0f ? rising', 'true ? rising'],
    ['the least probability does not fall with the entropy', 'exp64(-entropy)', 'exp64(entropy)'],
    ['a share of the entropy begins below it', 'sum += term(kept);\n', ''],
    ['a share of 1 is missed', ' * (1.0 + 1e-12);', ' * (1.0 - 1e-12);'],
    ['top_h keeps nothing', '    kept = max(kept, 1u);\n', ''],
    ['top_h forgets those that tie', 'list.at(largest) == list.at(cuts.top_k - 1)', 'false'],
    [
      'banned tokens are among the likeliest',
      '> rising(-INFINITY);\n    if',
      '>= rising(-INFINITY);\n    if',
    ],
    ['the typical are few', 'cuts.typical_p() < 1.0 ? 0.0 : cuts.min_p()', 'cuts.min_p()'],
  ].map((fault) => draw(...fault)),
  ...[
    [
      'sums of runs are added before they are there',
      '        __syncthreads(); // sums of runs are there',
      '        // sums of runs are there',
    ],
    [
      'sums of runs are overwritten before they are added',
      '        __syncthreads(); // sums of runs are added',
      '        // sums of runs are added',
    ],
    [
      'lanes are added before they are there',
      '    __syncthreads(); // lanes are there',
      '    // lanes are there',
    ],
    [
      'a mass is read before it is there',
      '    __syncthreads(); // the mass is there',
      '    // the mass is there',
    ],
    [
      'places of a span are read before they are there',
      '    __syncthreads(); // places of the span',
      '    // places of the span',
    ],
    [
      'the bucket of the end is read before it is found',
      '        __syncthreads(); // the bucket of the end',
      '        // the bucket of the end',
    ],
    [
      'elements are read before they are sorted',
      '        __syncthreads(); // the last elements',
      '        // the last elements',
    ],
    [
      'the end is read before it is found',
      '        __syncthreads(); // the end is found',
      '        // the end is found',
    ],
    [
      'weights beside runs are left out',
      'at = runs * RUN; at < len; at++',
      'at = runs * RUN; at + 1 < len; at++',
    ],
    ['a mass has no least weight', 'run[i] >= least ? run[i] : 0.0f', 'run[i]'],
    ['a span has no mass before it', 'target - mass, memory', 'target, memory'],
    ['a span has no upper end', 'weights[at] >= from && weights[at] < below', 'weights[at] >= from'],
    ['the end is in the other half', 'if (from_middle < target)', 'if (from_middle > target)'],
    ['the units of buckets before the end are forgotten', 'end++) mass += memory.buckets[end];', 'end++) {}'],
    [
      'buckets begin at half',
      '(0.5f * high - 0.5f * key(place)) * width',
      '(high - 0.5f * key(place)) * width',
    ],
    ['a range has no start', '    __syncthreads(); // a range has', '    // a range has'],
    [
      'a range is read before it is whole',
      '    __syncthreads(); // a range is whole',
      '    // a range is whole',
    ],
    ['a range is overwritten', '    __syncthreads(); // a range is read', '    // a range is read'],
    [
      'buckets are filled before they are empty',
      '        __syncthreads(); // buckets are',
      '        // buckets are',
    ],
    [
      'buckets are read before they are filled',
      '        __syncthreads(); // buckets have',
      '        // buckets have',
    ],
    [
      'elements are overwritten before they are read',
      '            __syncthreads(); // elements are read',
      '            // elements are read',
    ],
    [
      'counts of elements are overwritten',
      '            __syncthreads(); // elements are kept',
      '            // elements are kept',
    ],
    ['a target is cut off', '(Units)ceil(fmax(', '(Units)(fmax('],
    ['units overflow', '62 - (32 - __clz(len))', '64 - (32 - __clz(len))'],
    ['smaller keys come first', 'x > y || (x == y', 'x < y || (x == y'],
    ['of equal keys the last comes first', '(x == y && a < b)', '(x == y && a > b)'],
    ['one element too many is kept', '!(i > 0 && mass >= target)', '!(i > 0 && mass > target)'],
    ['keys too close to part are in order of places', 'at = next(at);', 'at = i;'],
    ['equal keys begin anew', 'uint32_t other = at + 1; at != NONE', 'uint32_t other = 0; at != NONE'],
  ].map((fault) => ({ ...draw(...fault), file: 'cut.cuh' })),
]
