//! Messages of libbpf about a program that the kernel refuses.

use std::sync::Mutex;

use libbpf_rs::PrintLevel;

/// Message of libbpf about the last refused program: its name and the verifier's last word.
static COMPLAINT: Mutex<(String, String)> = Mutex::new((String::new(), String::new()));

fn complain(text: String) {
    let Ok(mut said) = COMPLAINT.lock() else {
        return;
    };
    if text.contains("BPF program load failed") {
        said.0 = text.trim().trim_start_matches("libbpf: ").into();
    }
    // A long log ends with a summary of the verifier's work. The line before it is the reason for the refusal.
    if let Some((_, log)) = text.split_once("-- BEGIN PROG LOAD LOG --") {
        let log = log.split("-- END PROG LOAD LOG --").next().unwrap_or(log);
        let why = log.lines().map(str::trim).rfind(|l| {
            !l.is_empty() && !l.starts_with("processed ") && !l.starts_with("verification time")
        });
        said.1 = why.unwrap_or_default().into();
    }
}

/// Keeps the complaints of libbpf from here on, instead of printing them.
pub(crate) fn note_complaints() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, line| complain(line))));
}

pub(crate) fn last_complaint() -> String {
    let said = COMPLAINT.lock().map(|said| said.clone());
    let (program, why) = said.unwrap_or_default();
    [program, why].join(": ").trim_matches([':', ' ']).into()
}
