/** Chat templates. */

export {
  type InverseParser,
  type SelectedTemplate,
  type TemplateEntry,
  type TemplateQuery,
  TemplateRegistry,
} from './registry.js'
export {
  type RenderedTemplate,
  Template,
  type TemplateInput,
  type TemplateJson,
  type TemplateOptions,
} from './template.js'
export { renderUntrusted, type UntrustedOptions } from './untrusted.js'
