/** Chat templates. */

export { type RenderedTemplate, Template, type TemplateInput, type TemplateJson } from './template.js'
