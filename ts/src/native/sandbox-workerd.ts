/** The sandbox in workerd: an instance on the worker's own thread. Steps and memory are bounded; there is no deadline. */

import module from '#sandbox-binary'
import type * as Sandbox from './sandbox.js'
import { renderOnce } from './sandbox.js'

/** See `sandbox.ts`. */
export const renderInSandbox: typeof Sandbox.renderInSandbox = async (request) => renderOnce(module, request)
