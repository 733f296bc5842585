//! Draws of many rows: those of single draws, in order, with errors of a row of its own.

use fulmar_compute::{Compute, View};
use fulmar_core::{ErrorKind, Rng};
use fulmar_objective::{
    DrawContext, DrawMethod, DrawOptions, DrawRow, RowDraws, draw_in, draw_rng, token_mask,
};

const VOCAB: usize = 9;

#[test]
fn rows_are_drawn_as_one_by_one_with_their_likeliest_ids() {
    let mut rng = Rng::new(5).stream("rows");
    let logits: Vec<f32> = (0..6 * VOCAB).map(|_| rng.normal() as f32).collect();
    let allowed = token_mask(VOCAB, &[1, 4, 5]).unwrap();
    let context = DrawContext { prompt_ids: &[1, 2, 1], output_ids: &[2, 4], allowed: None };
    let masked = DrawContext { allowed: Some(&allowed), ..context };
    let noisy = DrawOptions { draw_method: DrawMethod::GumbelMax, ..DrawOptions::default() };
    let bound = DrawOptions { no_repeat_ngram_size: 2, top_k: Some(3), ..DrawOptions::default() };
    let rows: Vec<DrawRow<'_>> = [(&noisy, context), (&bound, masked), (&noisy, masked), (&bound, context)]
        .into_iter()
        .cycle()
        .zip(0..6)
        .map(|((options, context), seed)| DrawRow { options, context, rng: draw_rng(seed, 3).state() })
        .collect();
    let mut draws = RowDraws::new(Compute::Cpu, 6, 2).unwrap();
    draws.draw(View::from(&logits[..4 * VOCAB]), &rows[..4]).unwrap();
    draws.draw(View::from(&logits), &[]).unwrap();
    draws.draw(View::from(&logits[4 * VOCAB..]), &rows[4..]).unwrap();
    let drawn = draws.read().unwrap();
    assert_eq!(drawn.len(), 6);
    for ((drawn, row), logits) in drawn.into_iter().zip(&rows).zip(logits.chunks(VOCAB)) {
        let drawn = drawn.unwrap();
        let alone = draw_in(logits, row.options, &row.context, &mut Rng::from_state(row.rng)).unwrap();
        assert_eq!(drawn.draw, alone);
        assert_eq!(drawn.top_log_probs, Compute::Cpu.top_k_log_probs(logits, 2));
    }
}

#[test]
fn a_row_that_cannot_be_drawn_from_has_an_error_of_its_own() {
    let options = DrawOptions::default();
    let none = DrawOptions { banned_ids: vec![0, 1], ..DrawOptions::default() };
    let wrong = DrawOptions { top_p: 0.0, ..DrawOptions::default() };
    let row = |options| DrawRow { options, context: DrawContext::default(), rng: draw_rng(1, 0).state() };
    let logits = [0.0, 1.0, f32::NAN, 1.0, 0.0, 1.0, 0.0, 1.0, 2.0, 1.0];
    let mut draws = RowDraws::new(Compute::Cpu, 5, 0).unwrap();
    let rows = [&options, &options, &none, &wrong, &options].map(row);
    draws.draw(View::from(&logits), &rows).unwrap();
    let kinds: Vec<_> =
        draws.read().unwrap().into_iter().map(|drawn| drawn.err().map(|e| e.kind())).collect();
    let expected = [ErrorKind::NonFinite, ErrorKind::Empty, ErrorKind::OutOfRange].map(Some);
    assert_eq!(kinds, [&[None][..], &expected, &[None]].concat());
}

#[test]
fn logits_of_no_whole_rows_are_refused() {
    let options = DrawOptions::default();
    let row = DrawRow { options: &options, context: DrawContext::default(), rng: draw_rng(1, 0).state() };
    let mut draws = RowDraws::new(Compute::Cpu, 2, 0).unwrap();
    let refused = draws.draw(View::from(&[0.0, 1.0, 2.0]), &[row, row]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ShapeMismatch);
    assert_eq!(refused.detail(), "logits must be 2 rows of one width: got 3 numbers");
}
