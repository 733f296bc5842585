//! The report of a run on a device: `report.json` of what its parts have written so far, and a table.
//!
//! A folder holds `parts.txt` (name, result and seconds of each part that ended, with tabs between), `here.txt` (names and values),
//! a `.log` a part, records in `checks.jsonl`, `benches.jsonl` and `rivals.jsonl`, and `ncu.csv`.

use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

use serde_json::{Map, Value, json};

/// Lines of the table, with its last one, which names the report.
const LINES_MAX: usize = 60;

/// Kernels that a profiler looks at.
const PROFILED: usize = 6;

/// Last lines of the log of a part that did not end well.
const LOG_LINES_MAX: usize = 40;

/// Writes `report.json`, whole or not at all, and returns the table.
///
/// # Errors
/// `Io` if a file cannot be read or written.
pub fn report(folder: &Path) -> Result<String> {
    let report = json!({
        "parts": parts(folder)?,
        "here": here(folder)?,
        "checks": records(folder, "checks")?,
        "benches": records(folder, "benches")?,
        "rivals": records(folder, "rivals")?,
        "ncu": text(folder, "ncu.csv")?.lines().collect::<Vec<_>>(),
    });
    let (path, part) = (folder.join("report.json"), folder.join("report.json.part"));
    fs::write(&part, format!("{report:#}\n"))?;
    fs::rename(&part, &path)?;
    let mut lines = table(&report);
    if lines.len() > LINES_MAX - 1 {
        let rest = lines.len() - (LINES_MAX - 2);
        lines.truncate(LINES_MAX - 2);
        lines.push(format!("{rest} lines more in the report"));
    }
    lines.push(format!("report: {}", path.display()));
    Ok(lines.join("\n"))
}

/// Returns a pattern of the kernels of the slowest benches, or of every kernel if nothing was measured.
///
/// # Errors
/// `Io` if a file cannot be read or written.
pub fn slowest(folder: &Path) -> Result<String> {
    let mut benches = records(folder, "benches")?;
    benches.retain(|bench| bench["kernel"].is_string());
    benches.sort_by(|a, b| slower(b).total_cmp(&slower(a)));
    let kernels: Vec<_> =
        benches.iter().take(PROFILED).filter_map(|bench| bench["kernel"].as_str()).collect();
    Ok(if kernels.is_empty() { ".*".to_owned() } else { format!("^({})$", kernels.join("|")) })
}

fn parts(folder: &Path) -> Result<Vec<Value>> {
    let part = |line: &str| {
        let [name, result, seconds] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(malformed("parts.txt", line));
        };
        let mut part = json!({ "name": name, "result": result, "seconds": seconds.parse::<f64>().ok() });
        if result != "done" {
            let log = text(folder, &format!("{name}.log"))?;
            let lines: Vec<_> = log.lines().collect();
            part["log"] = json!(lines[lines.len().saturating_sub(LOG_LINES_MAX)..]);
        }
        Ok(part)
    };
    text(folder, "parts.txt")?.lines().map(part).collect()
}

fn here(folder: &Path) -> Result<Map<String, Value>> {
    let pair = |line: &str| {
        let (name, value) = line.split_once('\t').ok_or_else(|| malformed("here.txt", line))?;
        Ok((name.to_owned(), json!(value)))
    };
    text(folder, "here.txt")?.lines().map(pair).collect()
}

/// Returns the records of a part; the last line of one that was ended early may be half written.
fn records(folder: &Path, name: &str) -> Result<Vec<Value>> {
    let text = text(folder, &format!("{name}.jsonl"))?;
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Returns the text of a file, which is empty if the file is missing.
fn text(folder: &Path, name: &str) -> Result<String> {
    match fs::read(folder.join(name)) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    }
}

fn malformed(file: &str, line: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("{file} must have tabs between its columns: got {line:?}"))
}

fn table(report: &Value) -> Vec<String> {
    let rows = |name: &str, row: fn(&Value, &Value) -> Vec<String>| {
        records_of(report, name).iter().flat_map(|record| row(record, report)).collect::<Vec<_>>()
    };
    let head = line("name", "result", "share", "goal");
    let sections = [
        rows("parts", part_rows),
        check_rows(records_of(report, "checks")),
        rows("benches", bench_rows),
        rows("rivals", rival_rows),
    ];
    [head].into_iter().chain(sections.into_iter().flatten()).collect()
}

fn records_of<'a>(report: &'a Value, name: &str) -> &'a [Value] {
    report[name].as_array().map_or(&[], Vec::as_slice)
}

fn part_rows(part: &Value, _: &Value) -> Vec<String> {
    let result = part["result"].as_str().unwrap_or("?");
    let seconds = part["seconds"].as_f64().map_or(String::new(), |seconds| format!(", {seconds} s"));
    vec![line(text_of(part, "name"), &format!("{result}{seconds}"), "", "")]
}

/// Returns a row for all checks that passed, and one for each of the others.
fn check_rows(checks: &[Value]) -> Vec<String> {
    let count = |check: &Value, of: &str| check[of].as_u64().unwrap_or_default();
    let (good, bad): (Vec<_>, Vec<_>) = checks.iter().partition(|check| count(check, "failed") == 0);
    let of_good = (!good.is_empty()).then(|| {
        let passed: u64 = good.iter().map(|check| count(check, "passed")).sum();
        line("checks that passed", &format!("{}, with {passed} comparisons", good.len()), "", "")
    });
    let of_bad = bad.iter().map(|check| {
        let result = format!("{} passed, {} failed", count(check, "passed"), count(check, "failed"));
        line(&format!("check {}", text_of(check, "name")), &result, "", "")
    });
    of_good.into_iter().chain(of_bad).collect()
}

/// Returns the row of a bench: its share of a limit or of its goal, and how its rivals compare.
fn bench_rows(bench: &Value, report: &Value) -> Vec<String> {
    let name = format!("{} {}", text_of(bench, "name"), text_of(bench, "shape"));
    if let Some(error) = bench["error"].as_str() {
        return vec![line(&name, error, "", "")];
    }
    let (share, goal) = share_and_goal(bench, report);
    let rivals = records_of(report, "rivals").iter().filter(|rival| rival["name"] == bench["name"]);
    let rivals = rivals.filter_map(|rival| times_as_fast(rival, bench));
    let goal =
        Some(goal).filter(|goal| !goal.is_empty()).into_iter().chain(rivals).collect::<Vec<_>>().join("; ");
    vec![line(&name, &result_of(bench), &share, &goal)]
}

fn result_of(bench: &Value) -> String {
    let number = |name: &str| bench[name].as_f64().filter(|number| *number > 0.0);
    let time = slower(bench);
    if let Some(parts) = bench["parts"].as_object() {
        let parts = parts.iter().filter_map(|(name, part)| Some(format!("{name} {:.2}", part.as_f64()?)));
        return format!("{:.2} s: {}", time / 1e3, parts.collect::<Vec<_>>().join(", "));
    }
    let rates = [
        number("tokens_per_second").map(|rate| format!("{rate:.0} tokens/s")),
        number("teraflops").map(|rate| format!("{rate:.1} TFLOP/s")),
        number("gigabytes_per_second").map(|rate| format!("{rate:.0} GB/s")),
    ];
    let time = (time > 0.0).then(|| format!("{time:.3} ms"));
    [time, rates.into_iter().flatten().next()].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns the share of the limit that a bench has, and whether its goal is met.
fn share_and_goal(bench: &Value, report: &Value) -> (String, String) {
    let number = |name: &str| bench[name].as_f64();
    let goal = number("goal");
    let of_peak = || Some(number("teraflops").filter(|rate| *rate > 0.0)? / peak(report)?);
    let (share, least, of) = match (bench["goal_of"].as_str(), goal) {
        (Some("tokens_per_second"), Some(goal)) => {
            (number("tokens_per_second").map(|rate| rate / goal), 1.0, "goal")
        }
        (Some("milliseconds"), Some(goal)) => (Some(goal / slower(bench)), 1.0, "goal"),
        (Some("peak"), Some(goal)) => (of_peak(), goal, "peak"),
        (_, goal) => match number("share") {
            Some(share) => (Some(share), goal.unwrap_or_default(), "copy"),
            None => (of_peak(), goal.unwrap_or_default(), "peak"),
        },
    };
    let percent = share.map_or(String::new(), |share| format!("{:.0} % of {of}", share * 100.0));
    let met = match (goal, share) {
        (None, _) => String::new(),
        (Some(_), None) => format!("{:.0} % of {of} wanted, which was not measured", least * 100.0),
        (Some(_), Some(share)) if share >= least => "met".to_owned(),
        (Some(_), Some(share)) => format!("short by {:.0} %", (least - share) * 100.0),
    };
    (percent, met)
}

/// Returns the rate of the largest product in bfloat16 by cuBLAS, in TFLOP/s.
fn peak(report: &Value) -> Option<f64> {
    records_of(report, "rivals").iter().find(|rival| rival["name"] == "limit 8192^3")?["teraflops"].as_f64()
}

/// Returns the row of a rival without a time of ours, or of one that has no time.
fn rival_rows(rival: &Value, report: &Value) -> Vec<String> {
    let name = format!("{} against {}", text_of(rival, "name"), text_of(rival, "rival"));
    if let Some(error) = rival["error"].as_str() {
        return vec![line(&name, error, "", "")];
    }
    if let (Some(ratio), Some(goal)) = (rival["ratio"].as_f64(), rival["goal"].as_f64()) {
        let met = if ratio <= goal { "met".to_owned() } else { format!("short by {:.2}x", ratio - goal) };
        let [ours, theirs] = ["ours", "theirs"].map(|name| rival[name].as_f64().unwrap_or_default());
        return vec![line(
            &name,
            &format!("errors {ours:.2e} and {theirs:.2e}"),
            &format!("{ratio:.2}x"),
            &met,
        )];
    }
    let is_compared = records_of(report, "benches")
        .iter()
        .any(|bench| bench["name"] == rival["name"] && slower(bench) > 0.0);
    let time = rival["milliseconds"].as_f64().unwrap_or_default();
    if is_compared { Vec::new() } else { vec![line(&name, &format!("{time:.3} ms"), "", "")] }
}

/// Returns how many times as fast as a rival a bench is.
fn times_as_fast(rival: &Value, bench: &Value) -> Option<String> {
    let times = rival["milliseconds"].as_f64()? / Some(slower(bench)).filter(|ours| *ours > 0.0)?;
    let goal = rival["goal"].as_f64().map_or(String::new(), |goal| {
        if times >= goal { ", met".to_owned() } else { format!(", short by {:.2}x", goal - times) }
    });
    Some(format!("{times:.2}x as fast as {}{goal}", text_of(rival, "rival")))
}

/// Returns the time of the slower round, 0 for a record without times.
fn slower(bench: &Value) -> f64 {
    let times: &[Value] = bench["milliseconds"].as_array().map_or(&[], Vec::as_slice);
    times.iter().filter_map(Value::as_f64).fold(0.0, f64::max)
}

fn text_of<'a>(record: &'a Value, name: &str) -> &'a str {
    record[name].as_str().unwrap_or_default()
}

fn line(name: &str, result: &str, share: &str, goal: &str) -> String {
    format!("{name:<44}{result:<40}{share:>13}  {goal}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A folder of its own, with these files.
    fn folder_with(test: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("fulmar-summary-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn goals_and_rivals_are_compared_with_the_slower_round() {
        let benches = r#"{"name":"copy","gigabytes_per_second":3000.0}
{"name":"log_prob","kernel":"log_prob_rows","shape":"8 x 9","milliseconds":[2.0,4.0],"gigabytes_per_second":2600.0,"teraflops":0.0,"share":0.9,"goal":0.85}
{"name":"gather","kernel":"gather_rows_4","shape":"8 x 9","milliseconds":[1.0,1.0],"gigabytes_per_second":2000.0,"teraflops":0.0,"share":0.7,"goal":0.8}
{"name":"half writ"#;
        let rivals = r#"{"name":"log_prob","rival":"torch.compile","milliseconds":10.0,"goal":2.0}
{"name":"log_prob","rival":"Liger","milliseconds":6.0,"goal":2.0}"#;
        let folder = folder_with("goals", &[("benches.jsonl", benches), ("rivals.jsonl", rivals)]);
        let table = report(&folder).unwrap();
        let has = |parts: &[&str]| table.lines().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(has(&["log_prob 8 x 9", "4.000 ms, 2600 GB/s", "90 % of copy  met"]), "{table}");
        assert!(has(&["gather 8 x 9", "70 % of copy  short by 10 %"]), "{table}");
        assert!(
            has(&["2.50x as fast as torch.compile, met", "1.50x as fast as Liger, short by 0.50x"]),
            "{table}"
        );
        assert_eq!(slowest(&folder).unwrap(), "^(log_prob_rows|gather_rows_4)$");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn shares_are_of_a_peak_or_of_a_goal() {
        let benches = r#"{"name":"decode","shape":"3 x 4","milliseconds":[2.0,2.5],"tokens_per_second":80000.0,"goal":100000.0,"goal_of":"tokens_per_second"}
{"name":"training","shape":"2 x 9","milliseconds":[10.0],"tokens_per_second":5.0,"teraflops":240.0,"goal":0.3,"goal_of":"peak"}
{"name":"draw","shape":"1 x 9","milliseconds":[0.4,0.5],"gigabytes_per_second":9.0,"teraflops":0.0,"share":0.01,"goal":0.2,"goal_of":"milliseconds"}
{"name":"GRPO","shape":"2 x 2","milliseconds":[1500.0,1200.0],"parts":{"draw":1.0,"forward":0.5}}"#;
        let limit = r#"{"name":"limit 8192^3","rival":"cuBLAS, bf16","milliseconds":1.4,"teraflops":750.0}"#;
        let others = r#"{"name":"decode","rival":"transformers","milliseconds":10.0,"goal":5.0}
{"name":"log-probs in bf16","rival":"transformers","ours":0.013,"theirs":0.01,"ratio":1.3,"goal":1.2}
{"name":"training","rival":"transformers","error":"skipped: transformers is missing"}"#;
        let table = |rivals: &str| {
            let folder = folder_with("peak", &[("benches.jsonl", benches), ("rivals.jsonl", rivals)]);
            let table = report(&folder).unwrap();
            fs::remove_dir_all(&folder).unwrap();
            table
        };
        let with_peak = table(&format!("{limit}\n{others}"));
        let has = |table: &str, parts: &[&str]| {
            assert!(table.lines().any(|line| parts.iter().all(|part| line.contains(part))), "{table}");
        };
        has(&with_peak, &["decode 3 x 4", "2.500 ms, 80000 tokens/s", "80 % of goal  short by 20 %; 4.00x"]);
        has(&with_peak, &["training 2 x 9", "10.000 ms, 5 tokens/s", "32 % of peak  met"]);
        has(&with_peak, &["draw 1 x 9", "40 % of goal  short by 60 %"]);
        has(&with_peak, &["GRPO 2 x 2", "1.50 s: draw 1.00, forward 0.50"]);
        has(&with_peak, &["log-probs in bf16 against transformers", "1.30x  short by 0.10x"]);
        has(&with_peak, &["training against transformers", "skipped: transformers is missing"]);
        has(&table(others), &["training 2 x 9", "30 % of peak wanted, which was not measured"]);
    }

    #[test]
    fn a_part_that_failed_brings_the_end_of_its_log() {
        let log: String = (0..100).map(|at| format!("line {at}\n")).collect();
        let parts = "here\tdone\t2\nchecks\tended after 150 s\t150\n";
        let folder =
            folder_with("log", &[("parts.txt", parts), ("checks.log", &log), ("here.txt", "gpu\tH100\n")]);
        assert!(report(&folder).unwrap().contains("ended after 150 s"));
        let written: Value =
            serde_json::from_str(&fs::read_to_string(folder.join("report.json")).unwrap()).unwrap();
        assert_eq!(written["here"]["gpu"], "H100");
        assert_eq!(written["parts"][0].get("log"), None);
        let kept = written["parts"][1]["log"].as_array().unwrap();
        assert_eq!((kept.len(), &kept[39]), (LOG_LINES_MAX, &json!("line 99")));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_table_has_at_most_sixty_lines_and_ends_with_the_report() {
        let checks = |failed: usize| -> String {
            (0..80).map(|at| format!("{{\"name\":\"{at}\",\"passed\":2,\"failed\":{failed}}}\n")).collect()
        };
        let folder = folder_with("long", &[("checks.jsonl", &checks(0))]);
        let table = report(&folder).unwrap();
        assert!(table.contains("80, with 160 comparisons"), "{table}");
        fs::write(folder.join("checks.jsonl"), checks(1)).unwrap();
        let table = report(&folder).unwrap();
        assert_eq!(table.lines().count(), LINES_MAX);
        assert!(table.lines().last().unwrap().starts_with("report: "));
        assert_eq!(slowest(&folder).unwrap(), ".*");
        fs::write(folder.join("parts.txt"), "no tabs\n").unwrap();
        assert_eq!(report(&folder).unwrap_err().kind(), ErrorKind::InvalidData);
        fs::remove_dir_all(&folder).unwrap();
    }
}
