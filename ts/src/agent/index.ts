/** Agents as rollouts: an endpoint for programs that hold their conversations themselves. */

export type { OpenOptions } from './agent-limits.js'
export type { AgentRollout, PostedReward } from './agent-rollout.js'
export { type AgentCall, type AgentTaskOptions, agentTask } from './agent-task.js'
export type { AgentRecord } from './agent-turns.js'
export { InterceptionServer, type InterceptionServerOptions } from './interception-server.js'
