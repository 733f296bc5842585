//! Masks of rendered tokens.

use fulmar::chat;
use fulmar::core::options_from_json;
use wasm_bindgen::prelude::*;

use super::bytes;
use crate::error::{Result, guard};

/// Masks by origin, each `[T]`.
#[wasm_bindgen(getter_with_clone)]
pub struct TokenMasks {
    pub assistant: Vec<u8>,
    pub sampled: Vec<u8>,
    #[wasm_bindgen(js_name = endOfTurn)]
    pub end_of_turn: Vec<u8>,
}

#[wasm_bindgen(typescript_custom_section)]
const RENDERED: &str = "export interface Rendered {
  ids: Uint32Array;
  messageIndices: Int32Array;
  sampledMask: Uint8Array;
  isContent: Uint8Array;
  origins: Uint8Array;
}";

#[wasm_bindgen]
extern "C" {
    /// The result of `render`, as a plain object.
    #[wasm_bindgen(typescript_type = "Rendered")]
    pub type RenderedObject;
    #[wasm_bindgen(method, getter)]
    fn ids(this: &RenderedObject) -> Vec<u32>;
    #[wasm_bindgen(method, getter, js_name = messageIndices)]
    fn message_indices(this: &RenderedObject) -> Vec<i32>;
    #[wasm_bindgen(method, getter, js_name = sampledMask)]
    fn sampled_mask(this: &RenderedObject) -> Vec<u8>;
    #[wasm_bindgen(method, getter, js_name = isContent)]
    fn is_content(this: &RenderedObject) -> Vec<u8>;
    #[wasm_bindgen(method, getter)]
    fn origins(this: &RenderedObject) -> Vec<u8>;
}

/// Returns the masks of rendered tokens.
#[wasm_bindgen(js_name = tokenMasks)]
pub fn token_masks(rendered: &RenderedObject, stop_ids: &[u32], options: &str) -> Result<TokenMasks> {
    guard(|| {
        let columns = chat::RenderedColumns {
            ids: &rendered.ids(),
            message_indices: &rendered.message_indices(),
            sampled_mask: &rendered.sampled_mask(),
            is_content: &rendered.is_content(),
            origins: &rendered.origins(),
        };
        let masks = chat::token_masks(&columns.read()?, stop_ids, &options_from_json("options", options)?)?;
        Ok(TokenMasks {
            assistant: bytes(&masks.assistant),
            sampled: bytes(&masks.sampled),
            end_of_turn: bytes(&masks.end_of_turn),
        })
    })
}
