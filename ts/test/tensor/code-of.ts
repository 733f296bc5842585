import { type ErrorCode, FulmarError } from '../../src/core/index.js'

/** The code of the failure of `body`; anything but a FulmarError goes through. */
export function codeOf(body: () => unknown): ErrorCode {
  try {
    body()
  } catch (error) {
    if (error instanceof FulmarError) return error.code
    throw error
  }
  throw new Error('the call must fail')
}

/** The code of the rejection of what `body` returns; anything but a FulmarError goes through. */
export async function codeOfAsync(body: () => Promise<unknown>): Promise<ErrorCode> {
  try {
    await body()
  } catch (error) {
    if (error instanceof FulmarError) return error.code
    throw error
  }
  throw new Error('the call must fail')
}
