/** Runs a few jobs at once and the others in their order. */

/** Limits on running and on waiting jobs. */
export interface JobQueueOptions {
  readonly runningMax: number
  readonly waitingMax: number
}

/** Runs a job when its turn comes; rejects at once if too many wait already. */
export type JobQueue = <T>(job: () => Promise<T>) => Promise<T>

/** A queue without jobs. A job that fails gives its place to the next as one that succeeds. */
export function jobQueue({ runningMax, waitingMax }: JobQueueOptions): JobQueue {
  const waiting: (() => void)[] = []
  let numRunning = 0
  return async (job) => {
    if (numRunning >= runningMax) {
      if (waiting.length >= waitingMax) {
        const message = `at most ${waitingMax} templates may wait for a sandbox, and so many wait already`
        throw Object.assign(new Error(message), { code: 'LIMIT_EXCEEDED' })
      }
      // The job that ends hands its place on, so the number of running jobs stays.
      await new Promise<void>((resolve) => waiting.push(resolve))
    } else {
      numRunning += 1
    }
    try {
      return await job()
    } finally {
      const next = waiting.shift()
      if (next) next()
      else numRunning -= 1
    }
  }
}
