/** A file system in memory that forgets what was not synced, and that fails at a call of one's choice. */

import { basename, dirname } from 'node:path'
import type { Disk } from '../../src/telemetry/disk.js'

class FileNode {
  kept: Uint8Array | undefined
  readonly bytes: Uint8Array

  constructor(bytes: Uint8Array) {
    this.bytes = bytes
  }
}

class FolderNode {
  kept = new Map<string, Node>()
  readonly names = new Map<string, Node>()
}

type Node = FileNode | FolderNode

const systemError = (code: string) => Object.assign(new Error(`${code}: made up`), { code })

export class MemoryDisk implements Disk {
  /** Calls so far. */
  numCalls = 0
  /** The call that fails, from 1, with this code; with `forever` all behind it fail too, as after a crash. */
  fails: { readonly at: number; readonly code: string; readonly forever: boolean } | undefined
  readonly #root: FolderNode

  constructor(root = new FolderNode()) {
    this.#root = root
  }

  /** Returns the disk after a crash: names as last synced, or all of them; bytes only if they were synced. */
  afterCrash(names: 'synced' | 'all'): MemoryDisk {
    const survivor = (node: Node): Node => {
      if (node instanceof FileNode) {
        const file = new FileNode(node.kept ?? new Uint8Array(0))
        file.kept = file.bytes
        return file
      }
      const folder = new FolderNode()
      for (const [name, inner] of names === 'all' ? node.names : node.kept)
        folder.names.set(name, survivor(inner))
      folder.kept = new Map(folder.names)
      return folder
    }
    return new MemoryDisk(survivor(this.#root) as FolderNode)
  }

  async makeFolder(path: string): Promise<void> {
    this.#call()
    let folder = this.#root
    for (const part of parts(path)) {
      const inner = folder.names.get(part) ?? new FolderNode()
      if (!(inner instanceof FolderNode)) throw systemError('ENOTDIR')
      folder.names.set(part, inner)
      folder = inner
    }
  }

  async write(path: string, data: string | Uint8Array): Promise<void> {
    this.#call()
    const folder = this.#folder(dirname(path))
    if (folder.names.has(basename(path))) throw systemError('EEXIST')
    const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : Uint8Array.from(data)
    folder.names.set(basename(path), new FileNode(bytes))
  }

  async syncFile(path: string): Promise<void> {
    this.#call()
    const file = this.#find(path)
    if (!(file instanceof FileNode)) throw systemError('ENOENT')
    file.kept = file.bytes
  }

  async syncFolder(path: string): Promise<void> {
    this.#call()
    const folder = this.#folder(path)
    folder.kept = new Map(folder.names)
  }

  async rename(from: string, to: string): Promise<void> {
    this.#call()
    const node = this.#find(from)
    if (node === undefined) throw systemError('ENOENT')
    const target = this.#find(to)
    if (target instanceof FolderNode && target.names.size > 0) throw systemError('ENOTEMPTY')
    this.#folder(dirname(from)).names.delete(basename(from))
    this.#folder(dirname(to)).names.set(basename(to), node)
  }

  async remove(path: string): Promise<void> {
    this.#call()
    const folder = this.#find(dirname(path))
    if (folder instanceof FolderNode) folder.names.delete(basename(path))
  }

  async names(path: string): Promise<readonly string[] | undefined> {
    this.#call()
    const folder = this.#find(path)
    if (folder instanceof FileNode) throw systemError('ENOTDIR')
    return folder && [...folder.names.keys()]
  }

  async read(path: string): Promise<Uint8Array | undefined> {
    this.#call()
    const file = this.#find(path)
    if (file instanceof FolderNode) throw systemError('EISDIR')
    return file?.bytes
  }

  #call(): void {
    this.numCalls += 1
    const { at, code, forever } = this.fails ?? { at: 0, code: '', forever: false }
    if (at > 0 && (forever ? this.numCalls >= at : this.numCalls === at)) throw systemError(code)
  }

  #find(path: string): Node | undefined {
    let node: Node | undefined = this.#root
    for (const part of parts(path)) node = node instanceof FolderNode ? node.names.get(part) : undefined
    return node
  }

  #folder(path: string): FolderNode {
    const folder = this.#find(path)
    if (folder instanceof FolderNode) return folder
    throw systemError('ENOENT')
  }
}

function parts(path: string): string[] {
  return path.split('/').filter((part) => part !== '' && part !== '.')
}
