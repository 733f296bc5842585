/** Faults of the emulator, and of the tiles of its own test. */

import { barrier, EMULATOR, of } from './fault.mjs'

const tiles = of('tiles', EMULATOR)
const emulator = (name, from, to, file = 'tensor.h') => ({ ...tiles(name, from, to), file })

export const EMULATOR_FAULTS = [
  tiles(
    'a copy is read before its wait',
    '        copies_wait<STAGES - 2>();\n        __syncthreads();',
    '        __syncthreads();',
  ),
  tiles('a wait leaves one group too many', 'copies_wait<STAGES - 2>();', 'copies_wait<STAGES - 1>();'),
  tiles('copies of others are read without a barrier', ...barrier('all have')),
  tiles(
    'a stage is overwritten while others read it',
    '        begin(turn + STAGES - 1);\n        const float* read',
    '        begin(turn + STAGES);\n        const float* read',
  ),
  tiles(
    'a turn without copies has no group',
    'if (turn < turns) copy_async<16>(place, from + first, first < count);\n        copies_commit();',
    'if (turn < turns) copy_async<16>(place, from + first, first < count), copies_commit();',
  ),
  tiles('what is past the end is copied', 'from + first, first < count)', 'from + first, true)'),
  tiles(
    'two words of the left matrix are swapped',
    'pair_at(upper, pair), pair_at(lower, pair), pair_at(upper, pair + 8)',
    'pair_at(upper, pair), pair_at(upper, pair + 8), pair_at(lower, pair)',
  ),
  tiles(
    'two words of the right matrix are swapped',
    'pair_at(column, pair), pair_at(column, pair + 8)};',
    'pair_at(column, pair + 8), pair_at(column, pair)};',
  ),
  tiles(
    'two results of a lane are swapped',
    'd_rc + group * 8 + pair + 1, d_rc + (group + 8) * 8 + pair,',
    'd_rc + (group + 8) * 8 + pair, d_rc + group * 8 + pair + 1,',
  ),
  tiles(
    'a warp does not wait before it loads matrices',
    '    __syncwarp();\n    uint32_t words[COUNT];',
    '    uint32_t words[COUNT];',
  ),
  tiles(
    'a matrix is loaded from the rows of another',
    'threadIdx.x % (8 * COUNT) * STRIDE',
    '(threadIdx.x + 8) % (8 * COUNT) * STRIDE',
  ),
  emulator(
    'rows of the left matrix have other lanes',
    'left[quad + word % 2 * 8]',
    'left[quad / 2 + quad % 2 * 4 + word % 2 * 8]',
  ),
  emulator(
    'words of the left matrix are swapped',
    '[quad + word % 2 * 8][pair + half + word / 2 * 8]',
    '[quad + word / 2 * 8][pair + half + word % 2 * 8]',
  ),
  emulator(
    'words of the right matrix are swapped',
    'right[pair + half + word * 8]',
    'right[pair + half + 8 - word * 8]',
  ),
  emulator(
    'an element of a word of the left matrix is its neighbour',
    'half_of(a[word], half)',
    'half_of(a[word], 1 - half)',
  ),
  emulator(
    'a product forgets what it adds to',
    '(float)(d[i] + sums[i / 2][i % 2])',
    '(float)sums[i / 2][i % 2]',
  ),
  emulator('results have other rows', 'left[quad + i * 8][k]', 'left[quad + 8 - i * 8][k]'),
  emulator(
    'matrices are loaded transposed where they must not be',
    'r = IS_TRANSPOSED ? pair + i : own, c = IS_TRANSPOSED ? own : pair + i',
    'r = pair + i, c = own',
  ),
  emulator(
    'a copy is there at once',
    'std::memset(to, 0xff, SIZE);\n',
    'std::memcpy(to, copy.bytes, SIZE);\n',
  ),
  emulator(
    'a wait ends all groups',
    'copy.group + LEFT < fiber->num_groups',
    'copy.group < fiber->num_groups',
  ),
  emulator('zeros are not written', 'std::memset(copy.to, 0, copy.size);', ''),
  emulator(
    'a shuffle forgets its width',
    'emulated::current->lane / width * width + from % width',
    'from % width',
    'threads.h',
  ),
  emulator(
    'a shuffle goes up past its start',
    'lane % width >= by ? lane - by',
    'lane >= by ? lane - by',
    'threads.h',
  ),
  emulator(
    'a vote is that of a neighbour',
    '(uint32_t)slots[lane] << lane',
    '(uint32_t)slots[lane ^ 1] << lane',
    'threads.h',
  ),
  emulator('one vote is enough', 'is_true, line) == ~0u', 'is_true, line) != 0', 'threads.h'),
  emulator(
    'an addition is lost between blocks',
    'uint32_t value) { return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);',
    'uint32_t value) { const uint32_t old = *(volatile uint32_t*)at; *(volatile uint32_t*)at = old + value + (old % 64 == 63); return old;',
    'threads.h',
  ),
  emulator('a maximum is a minimum', 'while (value > old && ', 'while (value < old && ', 'threads.h'),
  emulator('an exchange returns what it wrote', 'return expected;', 'return value;', 'threads.h'),
  emulator('2^x has no lower end', 'value < 0x1p-126f ? 0.0f : value', 'value'),
  emulator('numbers of a pair are swapped', '{second, first}', '{first, second}'),
  emulator('a pair is rounded up at a tie', '0x7fff + (bits >> 16 & 1)', '0x8000'),
  ...[
    ['a capture goes on after a wait', '    stream->is_invalid = true;\n', ''],
    ['a capture that is invalid has a graph', 'if (!of.is_invalid) return *graph', 'return *graph'],
    ['a capture is ended by any thread', 'of.thread != std::this_thread::get_id()', 'false'],
    [
      'a capture copies from the host',
      'const void* from, size_t bytes, void* stream) {\n    if (const int status = refuse(stream_of(stream))) return status;',
      'const void* from, size_t bytes, void* stream) {',
    ],
    [
      'memory is allocated during a capture',
      '    if (const int status = refuse(captured_here)) return status;\n    return cuMemAllocAsync',
      '    return cuMemAllocAsync',
    ],
    ['a capture begins twice', 'if (of->captured) return ILLEGAL_STATE;', ''],
    [
      'a graph repeats its last work alone',
      'const auto nodes = ((Graph*)executable)->nodes;',
      'const auto& all = ((Graph*)executable)->nodes;\n    const std::vector<Work> nodes(all.size(), all.back());',
    ],
    ['a graph never fails', 'if (must_fail_launch()) return OUT_OF_RESOURCES;\n    //', '//'],
    ['each launch fails that has a number', 'each && calls', 'each || calls'],
    ['pinned memory is read at once', 'if (is_pinned(from))', 'if (false)'],
    ['memory that is not pinned is read late', 'if (is_pinned(from))', 'if (true)'],
    ['pinned memory is written at once', 'if (!is_pinned(to)) finish', 'finish'],
    ['pinned memory keeps what was there', 'if (is_pinned(to)) memset(to, 0xff, bytes);', ''],
    [
      'a copy to freed memory is left out',
      'if (!holds(device, bytes)) fail("a copy of memory that was freed before it was done");',
      'if (!holds(device, bytes)) return;',
    ],
    [
      'memory is freed before the work of its stream',
      '    finish(*stream_of(stream));\n    return release',
      '    return release',
    ],
    ['a pool counts what is free', 'memory_bytes() - free_bytes(), SUCCESS', 'free_bytes(), SUCCESS'],
  ].map(([name, from, to]) => emulator(name, from, to, 'driver.cpp')),
  ...[
    [
      'a copy is done when it is queued',
      'return stream.pending.push_back(std::move(work));',
      'return stream.pending.push_back(std::move(work)), drain(stream);',
    ],
    [
      'an event has passed when it is recorded',
      'point->stream = &stream;',
      'point->stream = &stream, point->is_passed = true;',
    ],
    [
      'a wait for an event ends all work of its stream',
      'run_first(*event.point->stream);',
      'drain(*event.point->stream);',
    ],
    ['a stream is in no order', 'stream.pending.push_back', 'stream.pending.push_front'],
    [
      'the default stream waits for every other one',
      'if (stream->is_blocking) drain(*stream);',
      'drain(*stream);',
    ],
  ].map(([name, from, to]) => emulator(name, from, to, 'streams.cpp')),
]
