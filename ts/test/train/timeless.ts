import type { RunEvent } from '../../src/telemetry/index.js'

/** Events without what depends on the clock. */
export function timeless(events: readonly RunEvent[]): RunEvent[] {
  const keep = ([name]: [string, number]) => !/seconds|tokensPerSecond/i.test(name)
  return events.map((event) =>
    'metrics' in event
      ? { ...event, metrics: Object.fromEntries(Object.entries(event.metrics).filter(keep)) }
      : event,
  )
}
