//! The folder of a dictionary without its elements, for callers that map the files and fill them.

use std::io::Write;

use fulmar_core::Result;
use serde_json::{Value, json};

use super::file_name::file_name;
use super::files::Sink;
use super::write;
use crate::key::Key;
use crate::tensor_dict::TensorDict;

/// Returns the descriptions of a folder for items like those of `row`, which has the batch size `[1, ..]`, in
/// a batch with the sizes `lead` in place of that 1: the paths of the `meta.json` files inside the folder,
/// and their texts.
///
/// # Errors
/// `Malformed`, naming the entry, as for [`save`](super::save).
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict, memmap};
/// let mut row = TensorDict::new(&[1])?;
/// row.set("id", Tensor::from_vec(&[1], vec![7_i64])?)?;
/// let files = memmap::outline(&row, &[1000])?;
/// assert_eq!(files[0].0, "meta.json");
/// assert!(files[0].1.contains(r#""shape":[1000]"#));
/// assert_eq!(memmap::leaf_path(&["next", "a/b"].into()), "next/a%2Fb.memmap");
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn outline(row: &TensorDict, lead: &[usize]) -> Result<Vec<(String, String)>> {
    let mut descriptions = Descriptions(Vec::new());
    write::dict(row, &mut descriptions)?;
    let widened = |(path, text): (String, Vec<u8>)| {
        // This text was just written, so it is a JSON object.
        let mut meta: Value = serde_json::from_slice(&text).unwrap_or_default();
        let entries = meta.as_object_mut().into_iter().flat_map(serde_json::Map::values_mut);
        entries.for_each(|entry| widen(entry, lead));
        (path, meta.to_string())
    };
    Ok(descriptions.0.into_iter().map(widened).collect())
}

/// Returns the path of the elements of the tensor at `key` inside a folder.
#[must_use]
pub fn leaf_path(key: &Key) -> String {
    let names: Vec<String> = key.path().iter().map(|name| file_name(name)).collect();
    format!("{}.memmap", names.join("/"))
}

/// Replaces the first length of a shape by `lead`: of the batch itself, or in the description of a leaf.
fn widen(entry: &mut Value, lead: &[usize]) {
    let shape = if entry.is_array() { Some(entry) } else { entry.get_mut("shape") };
    if let Some(Value::Array(lens)) = shape {
        lens.splice(..lens.len().min(1), lead.iter().map(|len| json!(len)));
    }
}

struct Descriptions(Vec<(String, Vec<u8>)>);

impl Sink for Descriptions {
    fn put(
        &mut self,
        path: &str,
        elements: bool,
        write: &dyn Fn(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        if !elements {
            let mut text = Vec::new();
            write(&mut text)?;
            self.0.push((path.to_owned(), text));
        }
        Ok(())
    }
}
