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
        let of: &[Value] = report[name].as_array().map_or(&[], Vec::as_slice);
        of.iter().flat_map(|record| row(record, report)).collect::<Vec<_>>()
    };
    let head = line("name", "result", "share", "goal");
    let sections = [
        rows("parts", part_rows),
        rows("checks", check_rows),
        rows("benches", bench_rows),
        rows("rivals", rival_rows),
    ];
    [head].into_iter().chain(sections.into_iter().flatten()).collect()
}

fn part_rows(part: &Value, _: &Value) -> Vec<String> {
    let result = part["result"].as_str().unwrap_or("?");
    let seconds = part["seconds"].as_f64().map_or(String::new(), |seconds| format!(", {seconds} s"));
    vec![line(text_of(part, "name"), &format!("{result}{seconds}"), "", "")]
}

fn check_rows(check: &Value, _: &Value) -> Vec<String> {
    let result = format!("{} passed, {} failed", check["passed"], check["failed"]);
    vec![line(&format!("check {}", text_of(check, "name")), &result, "", "")]
}

fn bench_rows(bench: &Value, _: &Value) -> Vec<String> {
    let name = format!("{} {}", text_of(bench, "name"), text_of(bench, "shape"));
    if let Some(error) = bench["error"].as_str() {
        return vec![line(&name, error, "", "")];
    }
    let bandwidth = bench["gigabytes_per_second"].as_f64().unwrap_or_default();
    let result = match bench["teraflops"].as_f64() {
        Some(teraflops) if teraflops > 0.0 => format!("{:.3} ms, {teraflops:.1} TFLOP/s", slower(bench)),
        Some(_) => format!("{:.3} ms, {bandwidth:.0} GB/s", slower(bench)),
        None => format!("{bandwidth:.0} GB/s"),
    };
    let share = bench["share"].as_f64();
    let percent = share.map_or(String::new(), |share| format!("{:.0} %", share * 100.0));
    let goal = bench["goal"].as_f64().zip(share).map_or(String::new(), |(goal, share)| {
        let short = (goal - share) * 100.0;
        if short <= 0.0 { "met".to_owned() } else { format!("short by {short:.0} %") }
    });
    vec![line(&name, &result, &percent, &goal)]
}

/// A rival's time against the bench of the same name.
fn rival_rows(rival: &Value, report: &Value) -> Vec<String> {
    let name = format!("{} against {}", text_of(rival, "name"), text_of(rival, "rival"));
    if let Some(error) = rival["error"].as_str() {
        return vec![line(&name, error, "", "")];
    }
    let time = rival["milliseconds"].as_f64().unwrap_or_default();
    let benches: &[Value] = report["benches"].as_array().map_or(&[], Vec::as_slice);
    let ours = benches.iter().find(|bench| bench["name"] == rival["name"]).map(slower);
    let Some(times) = ours.filter(|ours| *ours > 0.0).map(|ours| time / ours) else {
        return vec![line(&name, &format!("{time:.3} ms"), "", "")];
    };
    let goal = rival["goal"].as_f64().map_or(String::new(), |goal| {
        if times >= goal { "met".to_owned() } else { format!("short by {:.2}x", goal - times) }
    });
    vec![line(&name, &format!("{time:.3} ms, we are {times:.2}x as fast"), "", &goal)]
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
    format!("{name:<44}{result:<40}{share:>6}  {goal}").trim_end().to_owned()
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
        assert!(has(&["log_prob 8 x 9", "4.000 ms", "90 %", "met"]), "{table}");
        assert!(has(&["gather 8 x 9", "70 %", "short by 10 %"]), "{table}");
        assert!(
            has(&["torch.compile", "2.50x as fast", "met"]) && has(&["Liger", "1.50x", "short by 0.50x"])
        );
        assert_eq!(slowest(&folder).unwrap(), "^(log_prob_rows|gather_rows_4)$");
        fs::remove_dir_all(&folder).unwrap();
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
        let checks: String =
            (0..80).map(|at| format!("{{\"name\":\"{at}\",\"passed\":1,\"failed\":0}}\n")).collect();
        let folder = folder_with("long", &[("checks.jsonl", &checks)]);
        let table = report(&folder).unwrap();
        assert_eq!(table.lines().count(), LINES_MAX);
        assert!(table.lines().last().unwrap().starts_with("report: "));
        assert_eq!(slowest(&folder).unwrap(), ".*");
        fs::write(folder.join("parts.txt"), "no tabs\n").unwrap();
        assert_eq!(report(&folder).unwrap_err().kind(), ErrorKind::InvalidData);
        fs::remove_dir_all(&folder).unwrap();
    }
}
