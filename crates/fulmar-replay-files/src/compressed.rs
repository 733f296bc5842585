//! The format of rows with compressed tensors.

use std::path::Path;

use fulmar_core::{Dtype, Error, ErrorKind, Result, num_elements};
use fulmar_replay::folder::{corrupt, expect_json, write_json};
use fulmar_replay::{Storage, StorageCheckpointer, StoredRows};
use fulmar_tensor::{Entry, Tensor, TensorDict, from_torch_name, memmap, torch_name};
use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use serde_json::{Map, Value, json};

/// A folder with the zlib streams of each row's tensors (`compressed_data/<row>/`), their descriptions
/// (`metadata.json`) and the list of rows (`data_indices.json`). Rows hold tensors, nested or not, and
/// nothing else.
///
/// # Examples
/// ```
/// use fulmar_replay::{CompressedListStorage, Storage, StorageCheckpointer};
/// use fulmar_replay_files::CompressedListStorageCheckpointer;
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut storage = CompressedListStorage::new(4, 3)?;
/// let mut item = TensorDict::new(&[])?;
/// item.set("pixels", Tensor::from_vec(&[64], vec![7_u8; 64])?)?;
/// storage.set(&[0], &item.unsqueeze(0)?)?;
/// let folder = std::env::temp_dir().join(format!("fulmar-doc-compressed-{}", std::process::id()));
/// let form = CompressedListStorageCheckpointer::default();
/// form.save(&storage, 1, &folder)?;
/// assert_eq!(form.load(&[4], &folder)?.items, [storage.get(&[0])?]);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressedListStorageCheckpointer {
    /// The compression level, 0 to 9. Defaults to 3.
    pub level: u8,
}

impl Default for CompressedListStorageCheckpointer {
    fn default() -> Self {
        Self { level: 3 }
    }
}

const ABOUT: &str = "metadata.json";
const ROWS: &str = "data_indices.json";
const DATA: &str = "compressed_data";

impl StorageCheckpointer for CompressedListStorageCheckpointer {
    fn save(&self, storage: &dyn Storage, _: usize, folder: &Path) -> Result<()> {
        let (mut about, mut data) = (Vec::new(), TensorDict::new(&[])?);
        for (row, items) in StoredRows::of(storage)?.items.into_iter().enumerate() {
            let (described, packed) = self.pack(&items.index(0)?)?;
            about.push(described);
            data.set(row.to_string().as_str(), packed)?;
        }
        std::fs::create_dir(folder)?;
        memmap::save(folder.join(DATA), &data)?;
        // Upstream reads the rows as parts of a lazy stack, whatever their shapes are.
        let stack = json!({ "_type": "<class 'tensordict._lazy.LazyStackedTensorDict'>", "stack_dim": 0 });
        write_json(&folder.join(DATA).join("meta.json"), &stack)?;
        write_json(&folder.join(ROWS), &(0..about.len()).collect::<Vec<_>>())?;
        write_json(&folder.join(ABOUT), &about)
    }

    fn load(&self, _: &[usize], folder: &Path) -> Result<StoredRows> {
        let rows: Vec<usize> = expect_json(&folder.join(ROWS))?;
        let about: Vec<Value> = expect_json(&folder.join(ABOUT))?;
        if rows.iter().copied().ne(0..about.len()) {
            let detail = format!("rows must be those of the {} descriptions, in order", about.len());
            return Err(corrupt(detail).at(folder.join(ROWS).display()));
        }
        let row = |(row, about): (usize, &Value)| {
            let path = folder.join(DATA).join(row.to_string());
            let packed = memmap::load(&path)?;
            let item = unpack(about, &packed).map_err(|error| error.at(path.display()))?;
            item.unsqueeze(0)
        };
        let items = about.iter().enumerate().map(row).collect::<Result<Vec<_>>>()?;
        Ok(StoredRows { items, cursor: None })
    }
}

impl CompressedListStorageCheckpointer {
    /// Returns the descriptions of the entries of `item`, and their streams. Recursion is limited to the
    /// depth of dictionaries.
    fn pack(&self, item: &TensorDict) -> Result<(Value, TensorDict)> {
        let (mut fields, mut packed) = (Map::new(), TensorDict::new(&[])?);
        for (name, entry) in item.entries() {
            let (about, streams): (Value, Entry) = match entry {
                Entry::Tensor(tensor) => {
                    let stream = compress_to_vec_zlib(&tensor.to_bytes(), self.level.min(9));
                    let about = json!({
                        "type": "tensor",
                        "shape": { "__type__": "torch.Size", "value": tensor.shape() },
                        "dtype": { "__type__": "torch.dtype", "value": torch_name(tensor.dtype()) },
                        "device": { "__type__": "torch.device", "value": "cpu" },
                    });
                    (about, Tensor::from_vec(&[stream.len()], stream)?.into())
                }
                Entry::Dict(dict) => {
                    let (about, streams) = self.pack(dict)?;
                    (about, streams.into())
                }
                other => {
                    let detail = format!("{name:?} must be a tensor: got an entry of kind {}", other.kind());
                    return Err(Error::new(ErrorKind::Incompatible, detail));
                }
            };
            fields.insert(name.to_owned(), about);
            packed.set(name, streams)?;
        }
        Ok((json!({ "type": "tensordict", "fields": fields }), packed))
    }
}

/// Returns the item of the description `about`. Recursion is limited to the depth of `packed`.
fn unpack(about: &Value, packed: &TensorDict) -> Result<TensorDict> {
    let Some(fields) = about["fields"].as_object().filter(|_| about["type"] == "tensordict") else {
        return Err(corrupt("a description must be of a dictionary with fields"));
    };
    let mut item = TensorDict::new(&[])?;
    for (name, about) in fields {
        let entry: Result<Entry> = match packed.get(name.as_str()) {
            Some(Entry::Tensor(stream)) => inflate(about, stream).map(Into::into),
            Some(Entry::Dict(dict)) => unpack(about, dict).map(Into::into),
            _ => Err(corrupt("a field must have a stream or a folder")),
        };
        item.set(name.as_str(), entry.map_err(|error| error.at(format!("{name:?}")))?)?;
    }
    Ok(item)
}

fn inflate(about: &Value, stream: &Tensor) -> Result<Tensor> {
    let length = |value: &Value| value.as_u64().and_then(|len| usize::try_from(len).ok());
    let shape = about["shape"]["value"].as_array();
    let Some(shape) = shape.and_then(|dims| dims.iter().map(length).collect::<Option<Vec<_>>>()) else {
        return Err(corrupt(format!("a tensor must have a shape: got {}", about["shape"])));
    };
    let dtype = from_torch_name(about["dtype"]["value"].as_str().unwrap_or_default())?;
    if stream.dtype() != Dtype::U8 {
        return Err(corrupt(format!("a stream must be of u8: got {}", stream.dtype().name())));
    }
    let want = num_elements(&shape)?.saturating_mul(dtype.size_bytes());
    let bytes = decompress_to_vec_zlib_with_limit(&stream.to_bytes(), want)
        .map_err(|error| corrupt(format!("a stream must be zlib's, of {want} bytes: got {error}")))?;
    if bytes.len() != want {
        return Err(corrupt(format!("a stream must hold {want} bytes: got {}", bytes.len())));
    }
    Tensor::from_bytes(dtype, &shape, &bytes)
}
