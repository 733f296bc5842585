//! Names of batch dimensions.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_core::{Dtype, ErrorKind};
use fulmar_tensor::{Index, PadSequence, Tensor, TensorDict};

/// Returns a batch `[x: 2, t: 3]` with a nested dictionary of `[2, 3, 4]`.
fn batch() -> TensorDict {
    let mut inner = TensorDict::new(&[2, 3, 4]).unwrap();
    inner.set("id", Tensor::zeros(Dtype::I64, &[2, 3, 4]).unwrap()).unwrap();
    inner.set_names(&[None, None, Some("part")]).unwrap();
    let mut dict = TensorDict::new(&[2, 3]).unwrap();
    dict.set("in", inner).unwrap();
    dict.set_names(&[Some("x"), Some("t")]).unwrap();
    dict
}

#[test]
fn names_follow_their_dimensions_here_and_below() {
    let dict = batch();
    let check = |dict: fulmar_core::Result<TensorDict>, names: &[Option<&str>]| {
        let dict = dict.unwrap();
        assert_eq!(dict.names(), names);
        let below = dict.dict("in").unwrap();
        assert_eq!(below.names(), [names, &[Some("part")]].concat());
        assert_eq!(below.batch_size().len(), names.len() + 1);
    };
    let (x, t) = (Some("x"), Some("t"));
    check(Ok(dict.clone()), &[x, t]);
    check(dict.index(0), &[t]);
    check(dict.slice(0..1), &[x, t]);
    check(dict.index_select(&[1, 1, 0]), &[x, t]);
    check(dict.transpose(0, -1), &[t, x]);
    check(dict.permute(&[1, 0]), &[t, x]);
    check(dict.unsqueeze(1), &[x, None, t]);
    check(dict.unsqueeze(1).and_then(|dict| dict.squeeze(1)), &[x, t]);
    check(dict.unsqueeze(0).and_then(|dict| dict.squeeze_all()), &[x, t]);
    check(dict.squeeze(0), &[x, t]);
    check(dict.expand(&[5, 2, 3]), &[None, x, t]);
    check(dict.reshape(&[3, 2]), &[None, None]);
    check(dict.view(&[6]), &[None]);
    check(dict.flatten(0, 1), &[None]);
    check(dict.unflatten(1, &[3, 1]), &[x, None, None]);
    check(dict.repeat(&[2, 1]), &[x, t]);
    check(dict.roll(1, 1), &[x, t]);
    check(dict.at(&[Index::Ellipsis, (-1).into()]), &[x]);
    check(dict.at(&[Index::NewAxis, (0..1).into(), Index::list(vec![0, 2])]), &[None, x, t]);
    check(dict.masked_select(&Tensor::from_vec(&[2, 3], vec![true; 6]).unwrap()), &[None]);
    check(dict.gather(1, &Tensor::zeros(Dtype::I64, &[2, 1]).unwrap()), &[x, t]);
    check(dict.zeros_like(), &[x, t]);
    check(dict.sum(Some(0)), &[t]);
    check(dict.select(&["in".into()]), &[x, t]);
    check(dict.pad(&[(1, 0)], 0.0), &[x, t]);
    check(TensorDict::stack(&[dict.clone(), dict.clone()], -1), &[x, t, None]);
    check(TensorDict::cat(&[dict.clone(), dict.clone()], 1), &[x, t]);
    check(TensorDict::pad_sequence(std::slice::from_ref(&dict), &PadSequence::default()), &[None, x, t]);
    check(Ok(dict.split(1, 1).unwrap().swap_remove(0)), &[x, t]);
    check(Ok(dict.unbind(1).unwrap().swap_remove(0)), &[x]);
    assert_eq!(dict.with_batch_size(&[2]).unwrap().names(), [x]);
    let mut outer = TensorDict::new(&[2]).unwrap();
    outer.set("in", TensorDict::new(&[2]).unwrap()).unwrap();
    outer.set_names(&[x]).unwrap();
    assert_eq!(outer.with_batch_size(&[2, 3]).unwrap().dict("in").unwrap().names(), [x, None]);
    assert_eq!(dict.flatten_keys(".").unwrap().names(), [x, t]);
}

#[test]
fn what_is_set_is_named_like_its_parent() {
    let mut dict = batch();
    dict.set(["new", "deep"], TensorDict::new(&[2, 3]).unwrap()).unwrap();
    assert_eq!(dict.dict(["new", "deep"]).unwrap().names(), [Some("x"), Some("t")]);
    dict.set_names(&[None, None]).unwrap();
    assert_eq!(dict.dict("in").unwrap().names(), [None, None, Some("part")]);
}

#[test]
fn stacks_of_other_names_have_none() {
    let mut other = batch();
    other.set_names(&[Some("x"), Some("step")]).unwrap();
    assert_eq!(TensorDict::stack(&[batch(), other], 0).unwrap().names(), [None, None, None]);
}

#[test]
fn wrong_names_are_refused_and_change_nothing() {
    let mut dict = batch();
    let kind = |result: fulmar_core::Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(dict.set_names(&[Some("x")])), ErrorKind::ShapeMismatch);
    assert_eq!(kind(dict.set_names(&[Some("x"), Some("x")])), ErrorKind::Incompatible);
    assert_eq!(kind(dict.refine_names(&[Some("x"), Some("time")])), ErrorKind::Incompatible);
    assert_eq!(kind(dict.refine_names(&[None, Some("t")])), ErrorKind::Incompatible);
    assert_eq!(kind(dict.refine_names(&[Some("..."), Some("...")])), ErrorKind::Incompatible);
    assert_eq!(kind(dict.refine_names(&[Some("x"), Some("t"), Some("z")])), ErrorKind::ShapeMismatch);
    assert_eq!(dict.names(), [Some("x"), Some("t")]);
    dict.refine_names(&[Some("..."), Some("t")]).unwrap();
    let mut bare = TensorDict::new(&[2, 3]).unwrap();
    bare.refine_names(&[Some("x"), Some("...")]).unwrap();
    assert_eq!(bare.names(), [Some("x"), None]);
}
