/** Policies: a decoder in this process or in a worker, vLLM servers, ONNX models. */

export * from '../policy/index.js'
export * from '../vllm/index.js'
