import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { CHART_POINTS_MAX, type ChartPoint, escapeHtml, lineChart } from '../../src/telemetry/index.js'

const draw = (points: readonly ChartPoint[], dots = false) =>
  lineChart({ title: 'T', xLabel: 'step', series: [{ label: 'a', style: 'reward', points, dots }] })

/** The points of the first curve, on the page. */
function drawn(svg: string): [number, number][] {
  const list = /<polyline[^>]*points="([^"]*)"/.exec(svg)?.[1] ?? ''
  return list === ''
    ? []
    : list.split(' ').map((pair) => [Number(pair.split(',')[0]), Number(pair.split(',')[1])])
}

describe('lineChart', () => {
  it('puts every point inside its frame, larger values higher and later ones further right', () => {
    const value = fc.oneof(
      fc.double({ min: -1e6, max: 1e6, noNaN: true }),
      fc.double({ min: -1e100, max: 1e100, noNaN: true }),
    )
    fc.assert(
      fc.property(fc.array(value, { minLength: 1, maxLength: 40 }), (values) => {
        const places = drawn(draw(values.map((y, x) => ({ x, y }))))
        expect(places).toHaveLength(values.length)
        for (const [x, y] of places) {
          expect(x).toBeGreaterThanOrEqual(48)
          expect(x).toBeLessThanOrEqual(704)
          expect(y).toBeGreaterThanOrEqual(16)
          expect(y).toBeLessThanOrEqual(256)
        }
        const [highest, lowest] = [values.indexOf(Math.max(...values)), values.indexOf(Math.min(...values))]
        expect(places[highest]?.[1]).toBeLessThanOrEqual(places[lowest]?.[1] ?? 0)
      }),
    )
  })

  it('leaves out points that are not finite, and draws empty axes for none', () => {
    expect(
      drawn(
        draw([
          { x: 0, y: Number.NaN },
          { x: 0, y: Number.POSITIVE_INFINITY },
          { x: 0, y: 1e101 },
          { x: 1, y: 2 },
        ]),
      ),
    ).toHaveLength(1)
    const empty = draw([])
    expect(empty).toContain('>0.2<')
    expect(empty).not.toContain('NaN')
  })

  it('averages long curves down to what a screen can show', () => {
    const long = (length: number) => Array.from({ length }, (_, x) => ({ x, y: x % 2 }))
    expect(drawn(draw(long(CHART_POINTS_MAX)))).toHaveLength(CHART_POINTS_MAX)
    const thinned = drawn(draw(long(CHART_POINTS_MAX * 10)))
    expect(thinned.length).toBeLessThanOrEqual(CHART_POINTS_MAX)
    expect(new Set(thinned.map(([, y]) => y)).size).toBe(1)
  })

  it('draws a dot for each point where that is asked for', () => {
    const points = [0, 1, 2].map((x) => ({ x, y: x }))
    expect(draw(points, true).match(/<circle/g)).toHaveLength(3)
    expect(draw(points)).not.toContain('<circle')
  })
})

describe('escapeHtml', () => {
  it('leaves no character that could end a text or an attribute', () => {
    fc.assert(
      fc.property(fc.string(), (text) => {
        expect(escapeHtml(text)).not.toMatch(/[<>"']/)
      }),
    )
  })
})
