/** Things that a sandbox does in its home, whatever keeps it apart. */

/** A run, or an access to a file by its path in the home. */
export type SandboxAction =
  | { readonly kind: 'command'; readonly command: readonly string[] }
  | { readonly kind: 'code'; readonly code: string }
  | { readonly kind: 'write' | 'read'; readonly path: string }

/** The action as a program for a system with Python and a shell. */
export function commandOf(action: SandboxAction): readonly string[] {
  if (action.kind === 'command') return action.command
  if (action.kind === 'code') return ['python3', '-I', '-c', action.code]
  if (action.kind === 'read') return ['cat', '--', `./${action.path}`]
  return ['sh', '-c', 'mkdir -p -- "$(dirname -- "$1")" && cat > "$1"', 'sh', `./${action.path}`]
}
