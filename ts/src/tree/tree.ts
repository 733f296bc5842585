/** Trees of rollouts. */

import { checkKnownKeys, FulmarError, Handle, parseJson } from '../core/index.js'
import type { RawRolloutTree } from '../native/index.js'
import type { Tensor } from '../tensor/tensor.js'
import { dictAround, type TensorDict } from '../tensor/tensor-dict.js'

/** The facts of a vertex as the core has them. */
interface Vertex {
  readonly children: readonly number[]
  readonly parents: readonly number[]
  readonly hash: string | null
  readonly index: readonly number[] | null
}

/** A vertex as the key of {@link Tree.vertices}: its number, its hash or each path to it. */
export type VertexKeyType = 'id' | 'hash' | 'path'

/** Options of {@link Tree.plot}. */
export interface PlotOptions {
  /** A picture in SVG, or lines of text. @default 'svg' */
  readonly format?: 'svg' | 'text'
  /** Vertices and lines, or boxes above boxes. @default 'tree' */
  readonly figure?: 'tree' | 'box'
  /** The label of a vertex. @default its last observation as JSON */
  readonly makeLabels?: (vertex: Tree) => string
}

/** An environment that can count the actions of a state. */
export interface CountsActions {
  cardinality(state: TensorDict): number | bigint
}

/** Most paths of one map. */
const PATHS_MAX = 2 ** 20

/** The shared parts of all vertices of a tree. */
interface Shared {
  readonly native: Handle<RawRolloutTree>
  readonly vertices: Map<number, Tree>
}

// The door for the forest: makes the root of a tree.
let wrap: (make: () => RawRolloutTree) => Tree

/**
 * A vertex of a tree that {@link MCTSForest.getTree} read, with all below it: the root is the tree. A vertex that several paths reach is one
 * object. A tree keeps its own steps: later rollouts do not change it. `count` and `wins` begin at 0 and are yours.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { MCTSForest } from 'fulmar/tree'
 * import assert from 'node:assert/strict'
 *
 * const rollout = (states: number[], actions: number[]) =>
 *   TensorDict.from({ observation: Tensor.from(states.slice(0, -1)), action: Tensor.from(actions) }, { batchSize: [2] })
 *     .set(['next', 'observation'], Tensor.from(states.slice(1)))
 * const forest = new MCTSForest()
 * forest.extend(rollout([0, 1, 2], [0, 0]))
 * forest.extend(rollout([0, 1, 3], [0, 1]))
 * const tree = forest.getTree(rollout([0, 1, 2], [0, 0]).index(0))
 * assert.equal(tree.toString((vertex) => `${vertex.nodeObservation.item()}`), '() 1\n(0,) 2\n(1,) 3')
 * assert.deepEqual(tree.rolloutFromPath([1])?.tensor('action').data, Float32Array.of(0, 1))
 * ```
 */
export class Tree {
  /** The number of the vertex, in the order of a breadth-first walk; the root has 0. */
  readonly nodeId: number
  /** The hash of the first edge that leads here; `undefined` for the root. */
  readonly hash: bigint | undefined
  /** Rows of the edges that leave the last state; `undefined` where no action is known, or a cycle ends. */
  readonly index: readonly number[] | undefined
  /** Visits, for the caller to count. */
  count = 0
  /** Sum of returns, for the caller to add up. */
  wins = 0
  readonly #shared: Shared
  readonly #children: readonly number[]
  readonly #parents: readonly number[]

  private constructor(shared: Shared, id: number) {
    const vertex = parseJson(shared.native.call((tree) => tree.vertex(id))) as Vertex
    this.nodeId = id
    this.hash = vertex.hash === null ? undefined : BigInt(vertex.hash)
    this.index = vertex.index ?? undefined
    this.#children = vertex.children
    this.#parents = vertex.parents
    this.#shared = shared
    shared.vertices.set(id, this)
  }

  static {
    wrap = (make) => new Tree({ native: new Handle('Tree', make), vertices: new Map() }, 0)
  }

  /** The children, in the order of their edges. */
  get subtree(): readonly Tree[] {
    return this.#children.map((id) => this.#at(id))
  }

  /** Number of children. */
  get numChildren(): number {
    return this.#children.length
  }

  /** The vertices that this is a child of, one for most; empty for the root. */
  get parents(): readonly Tree[] {
    return this.#parents.map((id) => this.#at(id))
  }

  /** The same as `count`. */
  get visits(): number {
    return this.count
  }

  set visits(count: number) {
    this.count = count
  }

  /** The steps from the parent to here, `[T]`; `undefined` for a root that branches. */
  get rollout(): TensorDict | undefined {
    return found(this.#call((tree) => tree.rollout(this.nodeId)))
  }

  /** The last observation, without a batch dimension. */
  get nodeData(): TensorDict {
    return dictAround(() => this.#call((tree) => tree.nodeData(this.nodeId)))
  }

  /** The entry `observation` of the last observation. @throws {FulmarError} `UNKNOWN_NAME` if it is missing. */
  get nodeObservation(): Tensor {
    return this.nodeData.tensor('observation')
  }

  /** True if the last step to here ended its episode. */
  get isTerminal(): boolean {
    return this.#call((tree) => tree.isTerminal(this.nodeId))
  }

  /** The first action that leads here from the parent. */
  get branchingAction(): Tensor | undefined {
    return this.rollout?.index(0).tensor('action')
  }

  /** The last action that leads here. */
  get prevAction(): Tensor | undefined {
    const rollout = this.rollout
    return rollout?.index((rollout.batchSize[0] ?? 1) - 1).tensor('action')
  }

  /** The first action to each child. */
  get selectedActions(): readonly Tensor[] {
    return this.subtree.map((child) => child.branchingAction as Tensor)
  }

  /** Returns whether there are as many children as actions. */
  fullyExpanded(env: CountsActions): boolean {
    return BigInt(env.cardinality(this.nodeData)) === BigInt(this.numChildren)
  }

  /** Returns the vertex of a number at or below this one. @throws {FulmarError} `OUT_OF_RANGE` without such a vertex. */
  getVertexById(id: number): Tree {
    return this.#found('id', id, (vertex) => vertex.nodeId === id)
  }

  /** Returns the first vertex of a hash at or below this one, breadth first. @throws {FulmarError} `OUT_OF_RANGE` without such a vertex. */
  getVertexByHash(hash: bigint): Tree {
    return this.#found('hash', hash, (vertex) => vertex.hash === hash)
  }

  /** Returns whether a vertex with the hash of `other` is at or below this one. */
  has(other: Tree): boolean {
    return [...this.#breadthFirst()].some((vertex) => vertex.hash === other.hash)
  }

  /**
   * Returns the vertices at and below this one, breadth first, by their numbers or by their paths `'0,1'`. A shared vertex comes once, or once
   * for each path; by `hash` the keys are hashes as text, and `''` for the root.
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key type; `LIMIT_EXCEEDED` above 2^20 paths.
   */
  vertices(options: { readonly keyType?: VertexKeyType } = {}): Map<string, Tree> {
    checkKnownKeys('options', options, ['keyType'])
    const { keyType = 'id' } = options
    if (!['id', 'hash', 'path'].includes(keyType))
      throw new FulmarError('UNKNOWN_NAME', `keyType must be id, hash or path: got ${keyType}`)
    if (keyType === 'path') return this.#byPath()
    const key = (vertex: Tree) => (keyType === 'id' ? `${vertex.nodeId}` : `${vertex.hash ?? ''}`)
    return new Map([...this.#breadthFirst()].map((vertex) => [key(vertex), vertex]))
  }

  /**
   * Returns the number of vertices at and below this one; with `countRepeat` a shared vertex counts once for each path to it.
   * @throws {FulmarError} `LIMIT_EXCEEDED` above 2^20 paths; `UNKNOWN_NAME` for an unknown option.
   */
  numVertices(options: { readonly countRepeat?: boolean } = {}): number {
    checkKnownKeys('options', options, ['countRepeat'])
    return options.countRepeat ? this.#byPath().size : [...this.#breadthFirst()].length
  }

  /** Returns the numbers of parent and child of each link at and below this vertex, breadth first. */
  edges(): [number, number][] {
    return [...this.#breadthFirst()].flatMap((vertex) =>
      vertex.#children.map((child): [number, number] => [vertex.nodeId, child]),
    )
  }

  /** Yields each path down from this vertex and where it leads, breadth first, the empty one first. */
  *paths(): Generator<[readonly number[], Tree], void, undefined> {
    const queue: [readonly number[], Tree][] = [[[], this]]
    for (let next = queue.shift(); next; next = queue.shift()) {
      const [path, vertex] = next
      for (const [at, child] of vertex.subtree.entries()) queue.push([[...path, at], child])
      yield next
    }
  }

  /** Yields each path to a vertex without children, breadth first. */
  *validPaths(): Generator<readonly number[], void, undefined> {
    for (const [path, vertex] of this.paths()) if (vertex.numChildren === 0) yield path
  }

  /** Returns the number of links of the longest path down from this vertex. */
  maxLength(): number {
    const longest = new Map<Tree, number>()
    for (const vertex of [...this.#childrenFirst()])
      longest.set(vertex, Math.max(-1, ...vertex.subtree.map((child) => longest.get(child) ?? 0)) + 1)
    return longest.get(this) ?? 0
  }

  /**
   * Returns the steps of this vertex and of those along a path down from it, `[T]`; `undefined` without steps. A path says which child to
   * take at each vertex. Copies.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no such child.
   */
  rolloutFromPath(path: readonly number[]): TensorDict | undefined {
    if (this.nodeId === 0) return found(this.#call((tree) => tree.rolloutFromPath(Float64Array.from(path))))
    const first = this.#pathHere()
    const all = found(this.#call((tree) => tree.rolloutFromPath(Float64Array.from([...first, ...path]))))
    const before = first.slice(0, -1)
    const skipped =
      found(this.#call((tree) => tree.rolloutFromPath(Float64Array.from(before))))?.batchSize[0] ?? 0
    return all?.slice(skipped)
  }

  /**
   * Returns a line for each vertex with steps at and below the root, depth first: its path, as Python writes a tuple, indented by its depth,
   * and a label. The children of a shared vertex are written where it comes first.
   */
  toString(label?: (vertex: Tree) => string): string {
    return this.#call((tree) => tree.toText(this.#labels(label)))
  }

  /**
   * Draws the whole tree, each vertex once.
   * @throws {FulmarError} `LIMIT_EXCEEDED` above 2^14 vertices in SVG; `UNKNOWN_NAME` for an unknown format or figure.
   */
  plot(options: PlotOptions = {}): string {
    checkKnownKeys('options', options, ['format', 'figure', 'makeLabels'])
    const { format = 'svg', figure = 'tree', makeLabels } = options
    if (!['svg', 'text'].includes(format))
      throw new FulmarError('UNKNOWN_NAME', `format must be svg or text: got ${format}`)
    if (!['tree', 'box'].includes(figure))
      throw new FulmarError('UNKNOWN_NAME', `figure must be tree or box: got ${figure}`)
    if (format === 'text') return this.toString(makeLabels)
    return this.#call((tree) => tree.toSvg(figure === 'box', this.#labels(makeLabels)))
  }

  #byPath(): Map<string, Tree> {
    const vertices = new Map<string, Tree>()
    for (const [path, vertex] of this.paths()) {
      if (vertices.size === PATHS_MAX)
        throw new FulmarError(
          'LIMIT_EXCEEDED',
          `the tree must have at most ${PATHS_MAX} paths: got at least ${PATHS_MAX + 1}`,
        )
      vertices.set(path.join(','), vertex)
    }
    return vertices
  }

  #at(id: number): Tree {
    return this.#shared.vertices.get(id) ?? new Tree(this.#shared, id)
  }

  #call<R>(body: (tree: RawRolloutTree) => R): R {
    return this.#shared.native.call(body)
  }

  #labels(label: ((vertex: Tree) => string) | undefined): string[] {
    if (!label) return []
    const count = this.#call((tree) => tree.numVertices())
    return Array.from({ length: count }, (_, id) => label(this.#at(id)))
  }

  #found(name: string, value: number | bigint, is: (vertex: Tree) => boolean): Tree {
    for (const vertex of this.#breadthFirst()) if (is(vertex)) return vertex
    throw new FulmarError('OUT_OF_RANGE', `${name} must be that of a vertex: got ${value}`)
  }

  *#breadthFirst(): Generator<Tree, void, undefined> {
    const seen = new Set<Tree>([this])
    for (const vertex of seen) {
      yield vertex
      for (const child of vertex.subtree) seen.add(child)
    }
  }

  *#childrenFirst(): Generator<Tree, void, undefined> {
    const seen = new Set<Tree>([this])
    const stack: [Tree, number][] = [[this, 0]]
    for (let top = stack.at(-1); top; top = stack.at(-1)) {
      const [vertex, next] = top
      const child = vertex.subtree[next]
      top[1] += 1
      if (!child) {
        stack.pop()
        yield vertex
      } else if (!seen.has(child)) {
        seen.add(child)
        stack.push([child, 0])
      }
    }
  }

  /** A path from the root to this vertex, by first parents. */
  #pathHere(): number[] {
    const path: number[] = []
    for (let vertex: Tree = this; vertex.nodeId !== 0; ) {
      const parent = vertex.#at(vertex.#parents[0] as number)
      path.unshift(parent.#children.indexOf(vertex.nodeId))
      vertex = parent
    }
    return path
  }
}

/** Makes the root of a tree of the core. */
export function treeAround(make: () => RawRolloutTree): Tree {
  return wrap(make)
}

function found(dict: ReturnType<RawRolloutTree['rollout']>): TensorDict | undefined {
  return dict ? dictAround(() => dict) : undefined
}
