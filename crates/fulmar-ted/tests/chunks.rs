//! Data sets of deflated chunks, of all shapes, compared with the elements that were written.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_ted::Hdf5File;
use fulmar_tensor::Tensor;
use hdf5_pure::FileBuilder;
use proptest::prelude::*;

/// Lengths and chunk lengths of each dimension.
fn dims() -> impl Strategy<Value = Vec<(usize, usize)>> {
    proptest::collection::vec((1_usize..9, 1_usize..7), 1..4)
}

/// Bytes of a file with the data set `x`, and its elements.
fn written(dims: &[(usize, usize)], element: &str, is_shuffled: bool, is_checked: bool) -> (Vec<u8>, Tensor) {
    let shape: Vec<usize> = dims.iter().map(|(len, _)| *len).collect();
    let len = shape.iter().product();
    let numbers = (0..len).map(|at| (at * 7 % 251) as i64).collect::<Vec<_>>();
    let tensor = Tensor::from_vec(&shape, numbers).unwrap();
    let tensor = match element {
        "f64" => tensor.to(fulmar_core::Dtype::F64).unwrap(),
        "f32" => tensor.to(fulmar_core::Dtype::F32).unwrap(),
        "i16" => tensor.to(fulmar_core::Dtype::I16).unwrap(),
        "u8" => tensor.to(fulmar_core::Dtype::U8).unwrap(),
        _ => tensor,
    };
    let mut builder = FileBuilder::new();
    let data = builder.create_dataset("x");
    match element {
        "f64" => data.with_f64_data(&tensor.to_vec::<f64>().unwrap()),
        "f32" => data.with_f32_data(&tensor.to_vec::<f32>().unwrap()),
        "i16" => data.with_i16_data(&tensor.to_vec::<i16>().unwrap()),
        "u8" => data.with_u8_data(&tensor.to_vec::<u8>().unwrap()),
        _ => data.with_i64_data(&tensor.to_vec::<i64>().unwrap()),
    };
    let (shape, chunks): (Vec<_>, Vec<_>) =
        dims.iter().map(|(len, chunk)| (*len as u64, (*chunk).min(*len) as u64)).unzip();
    data.with_shape(&shape).with_chunks(&chunks).with_deflate(4);
    if is_shuffled {
        data.with_shuffle();
    }
    if is_checked {
        data.with_fletcher32();
    }
    (builder.finish().unwrap(), tensor)
}

fn read(bytes: Vec<u8>) -> fulmar_core::Result<Tensor> {
    let dict = Hdf5File::from_bytes(bytes)?.root()?.to_dict()?;
    dict.tensor("x").cloned()
}

proptest! {
    #[test]
    fn chunks_of_all_shapes_come_to_their_places(
        dims in dims(),
        element in prop::sample::select(vec!["f64", "f32", "i64", "i16", "u8"]),
        is_shuffled in any::<bool>(),
        is_checked in any::<bool>(),
    ) {
        let (bytes, want) = written(&dims, element, is_shuffled, is_checked);
        prop_assert_eq!(read(bytes.clone()).unwrap(), want.clone());
        let path = std::env::temp_dir().join(format!("fulmar-chunks-{}.hdf5", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let file = Hdf5File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        prop_assert_eq!(file.root().unwrap().read("x").unwrap(), want.into());
    }

    #[test]
    fn a_damaged_file_is_refused_or_read_as_the_crate_reads_it(at in 0_usize..4000, byte in 1_u8..) {
        let (mut bytes, _) = written(&[(40, 10), (3, 1)], "f32", false, false);
        let at = at % bytes.len();
        bytes[at] ^= byte;
        if let Ok(tensor) = read(bytes.clone()) {
            let mut want = hdf5_pure::File::from_bytes(bytes).unwrap().root().dataset("x").unwrap().read_raw().unwrap();
            let read = tensor.to_bytes();
            // The byte may be that of the order.
            if want != read {
                want.chunks_exact_mut(tensor.dtype().size_bytes()).for_each(<[u8]>::reverse);
            }
            prop_assert_eq!(want, read);
        }
    }
}
