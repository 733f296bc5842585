/** The sandbox in workerd: an instance beside the worker's own code. Steps and memory bound it; no deadline does. */

import module from '#sandbox-binary'
import type * as Sandbox from './sandbox.js'
import { renderOnce } from './sandbox.js'

/** See `sandbox.ts`. */
export const renderInSandbox: typeof Sandbox.renderInSandbox = async (request) => renderOnce(module, request)
