use super::*;

fn error(text: &str) -> String {
    let told = Config::parse(Path::new("a.toml"), text).unwrap_err();
    told.to_string()
}

#[test]
fn an_empty_file_is_the_defaults_and_so_is_the_example() {
    let empty = Config::parse(Path::new("a.toml"), "").unwrap();
    assert_eq!(empty.store.max_bytes, Size(2 << 30));
    let example = include_str!("../../agent.toml");
    let parsed = Config::parse(Path::new("agent.toml"), example).unwrap();
    let plain = |c: &Config| {
        (
            c.store.clone(),
            c.budget.clone(),
            c.metrics.clone(),
            c.commands.clone(),
        )
    };
    assert_eq!(plain(&parsed), plain(&empty));
    assert!(parsed.targets.is_empty() && parsed.triggers.is_empty());
    // With its comments taken away, every key of the example is a key of the configuration.
    let all: String = example
        .lines()
        .map(|l| l.strip_prefix("#: ").unwrap_or(l).to_owned() + "\n")
        .collect();
    let parsed = Config::parse(Path::new("agent.toml"), &all).unwrap();
    assert_eq!((parsed.targets.len(), parsed.triggers.len()), (3, 5));
    assert_eq!(parsed.services.rules.len(), 3);
}

#[test]
fn errors_name_line_key_and_allowed_values() {
    for (text, expected) in [
        (
            "[store]\nmax_age = \"24h\"\nmax_size = \"2GiB\"\n",
            "'a.toml', line 3, store.max_size: unknown field `max_size`, expected one of `dir`, `max_bytes`, `max_age`",
        ),
        (
            "[store]\nmax_bytes = 5\n",
            "'a.toml', line 2, store.max_bytes: invalid type: integer `5`, expected a size such as",
        ),
        (
            "\n[windows]\nlength = \"7s\"\n",
            "line 3, windows.length: a minute must be a multiple of it: 1s, 2s",
        ),
        (
            "[commands]\nkeep = \"some\"\n",
            "line 2, commands.keep: unknown variant `some`, expected one of `program`, `redacted`, `all`",
        ),
        (
            "[[target]]\nname = \"a/b\"\nkind = \"otlp\"\nurl = \"http://a\"\n",
            "line 2, target.name: invalid value: string \"a/b\", expected 1 to 64 letters",
        ),
        (
            "[[target]]\nname = \"a\"\nkind = \"otlp\"\n",
            "target: missing field `url`",
        ),
        (
            "[[target]]\nname = \"a\"\nkind = \"otlp\"\nurl = \"http://a\"\n[[target]]\nname = \"a\"\nkind = \"otlp\"\nurl = \"http://b\"\n",
            "line 6, target.name: the name \"a\" is used twice",
        ),
        (
            "[[services.rule]]\nmatch = { exe = \"(\" }\n",
            "line 2, services.rule.exe: invalid value: string \"(\", expected a regular expression",
        ),
        (
            "[[trigger]]\nname = \"t\"\nwhen = { pressure = { resource = \"disk\", above = \"5%\" } }\n",
            "line 3, trigger.resource: unknown variant `disk`, expected one of `cpu`, `io`, `memory`",
        ),
        (
            "[metrics]\nlisten = \"localhost\"\n",
            "line 2, metrics.listen: invalid socket address",
        ),
        ("store = [\n", "line 1"),
        (
            "nothing = 1\n",
            "line 1, nothing: unknown field `nothing`, expected one of `agent`, `windows`",
        ),
    ] {
        let told = error(text);
        assert!(told.contains(expected), "\n{told}\n{expected}");
    }
}
