/** Templates that try to use up time or memory. Whoever renders them must refuse, or come to a harmless end. */

import type { TemplateInput } from '../../src/template/index.js'

/** A template with what it is rendered with. */
export interface Bomb {
  readonly source: string
  readonly input?: TemplateInput
  /** True if it takes long outside the sandbox, where only the number of steps ends it. */
  readonly isLong?: boolean
}

const loops = (depth: number, body: string) =>
  `${'{% for i in range(1000) %}'.repeat(depth)}${body}${'{% endfor %}'.repeat(depth)}`

/** `expression` of `x`, from `start`, again and again. */
const growing = (start: string, expression: string, times = 200) =>
  `{% set ns = namespace(x=${start}) %}{% for i in range(${times}) %}{% set ns.x = ${expression} %}{% endfor %}{{ ns.x }}`

const LONG = "('x' * 1000000)"

/** Each by what it abuses. */
export const BOMBS: Readonly<Record<string, Bomb>> = {
  'nested loops': { source: loops(6, ''), isLong: true },
  'a range of a billion': { source: '{% for i in range(1000000000) %}{% endfor %}' },
  'a list of a billion': { source: '{{ range(1000000000) | list | length }}' },
  'a loop that prints': { source: loops(3, 'all work and no play') },
  'text times a billion': { source: "{{ 'x' * 1000000000 }}" },
  'a list times a billion': { source: '{{ [0] * 1000000000 }}' },
  'doubling by concatenation': { source: growing("'x'", 'ns.x ~ ns.x') },
  'doubling by addition of lists': { source: growing('[0]', 'ns.x + ns.x') },
  'doubling by replace': { source: growing("'xx'", "ns.x | replace('x', 'xx')") },
  'doubling by join': { source: growing("'x'", '[ns.x, ns.x] | join(ns.x)') },
  'doubling by format': { source: growing("'x'", "'%s%s' | format(ns.x, ns.x)") },
  'a wide format': { source: "{{ '%1000000000d' | format(1) }}{{ 'x' | center(1000000000) }}" },
  'a macro that calls itself': { source: '{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}' },
  'a storm of macros': {
    source: `{% macro a0() %}x{% endmacro %}${Array.from(
      { length: 30 },
      (_, index) => `{% macro a${index + 1}() %}{{ a${index}() }}{{ a${index}() }}{% endmacro %}`,
    ).join('')}{{ a30() }}`,
    isLong: true,
  },
  'a recursive loop over itself': {
    source: '{% set l = [1, 2, 3, 4, 5, 6, 7, 8] %}{% for i in l recursive %}{{ loop(l) }}{% endfor %}',
  },
  'deep brackets': { source: `{{ ${'['.repeat(100_000)}1${']'.repeat(100_000)} }}` },
  'deep blocks': { source: `${'{% if true %}'.repeat(50_000)}${'{% endif %}'.repeat(50_000)}` },
  'a chain of operators': { source: `{{ 1${' + 1'.repeat(200_000)} }}` },
  'a literal of 10 MB': { source: `{{ '${'x'.repeat(10_000_000)}' }}` },
  'JSON that nests deep': {
    source: '{{ messages | tojson }}',
    input: { messages: `[{"content":${'['.repeat(100_000)}${']'.repeat(100_000)}}]` },
  },
  'lists that nest deep': { source: growing('[0]', '[ns.x]', 100_000) },
  'lists that hold themselves many times, as JSON': {
    source: growing('[0]', '[ns.x, ns.x, ns.x, ns.x]', 40).replace(
      '{{ ns.x }}',
      '{{ ns.x | tojson(indent=8) }}',
    ),
  },
  'searches in long text': {
    source: `{% set a = ${LONG} %}{% set b = a ~ 'y' %}${loops(2, '{{ a.split(b) | length }}{{ a.find(b) }}{{ a.count(b) }}')}`,
  },
  'sorting, slices and sums of long lists': {
    source: `{% set l = range(100000) | list %}${loops(2, '{{ (l | sort(reverse=true))[::-1] | sum }}')}`,
  },
}
