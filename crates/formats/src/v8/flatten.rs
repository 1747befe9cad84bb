//! A tree of nested JSON objects → a list of them.
//!
//! Old V8 profiles nest a node for each call, deeper than a recursive JSON reader may go. Here the
//! text is walked once with a stack of brackets: each node becomes a text of its own, with an empty
//! list in the place of its children.

/// A node's text, and the place of its caller in the list.
pub(super) struct Flat {
    pub(super) parent: Option<usize>,
    pub(super) json: Vec<u8>,
}

/// The nodes under the key `head` of the outermost object, and the text without them.
pub(super) struct Flattened {
    pub(super) nodes: Vec<Flat>,
    pub(super) rest: Vec<u8>,
}

/// A bracket that is open.
#[derive(Clone, Copy)]
enum Open {
    /// A node's object.
    Node(usize),
    /// The list of a node's children.
    Children(usize),
    Other(u8),
}

/// The index past the string that begins at `at`; `None` where the text ends in it.
fn string(text: &[u8], at: usize) -> Option<usize> {
    let mut i = at + 1;
    loop {
        match text.get(i)? {
            b'"' => return Some(i + 1),
            b'\\' => i += 2,
            _ => i += 1,
        }
    }
}

/// The next byte that is no white space, if the string before it is a key: index of its value.
fn value(text: &[u8], after: usize) -> Option<usize> {
    let skip = |from: usize| {
        let rest = text.get(from..)?;
        Some(from + rest.iter().position(|c| !c.is_ascii_whitespace())?)
    };
    let colon = skip(after)?;
    (text[colon] == b':').then_some(())?;
    skip(colon + 1)
}

/// Takes the tree apart; `None` where brackets do not match.
pub(super) fn flatten(text: &[u8]) -> Option<Flattened> {
    let mut out = Flattened {
        nodes: Vec::new(),
        rest: Vec::new(),
    };
    let mut open: Vec<Open> = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let sink = match open.iter().rev().find(|o| !matches!(o, Open::Other(_))) {
            Some(Open::Node(n) | Open::Children(n)) => &mut out.nodes[*n].json,
            _ => &mut out.rest,
        };
        match text[at] {
            b'"' => {
                let end = string(text, at)?;
                let key = value(text, end).map(|v| (&text[at + 1..end - 1], v, text[v]));
                sink.extend_from_slice(&text[at..end]);
                at = end;
                match (open.last(), key) {
                    (Some(Open::Node(n)), Some((b"children", list, b'['))) => {
                        sink.extend_from_slice(b":[");
                        let n = *n;
                        open.push(Open::Children(n));
                        at = list + 1;
                    }
                    (Some(Open::Other(b'{')), Some((b"head", node, b'{'))) if open.len() == 1 => {
                        sink.extend_from_slice(b":null");
                        open.push(Open::Node(out.nodes.len()));
                        out.nodes.push(Flat {
                            parent: None,
                            json: b"{".to_vec(),
                        });
                        at = node + 1;
                    }
                    _ => {}
                }
                continue;
            }
            b'{' if matches!(open.last(), Some(Open::Children(_))) => {
                let Some(Open::Children(parent)) = open.last().copied() else {
                    return None;
                };
                open.push(Open::Node(out.nodes.len()));
                out.nodes.push(Flat {
                    parent: Some(parent),
                    json: b"{".to_vec(),
                });
            }
            b @ (b'{' | b'[') => {
                sink.push(b);
                open.push(Open::Other(b));
            }
            b @ (b'}' | b']') => {
                sink.push(b);
                let matches = match open.pop()? {
                    Open::Node(_) => b == b'}',
                    Open::Children(_) => b == b']',
                    Open::Other(o) => b == o + 2,
                };
                matches.then_some(())?;
            }
            // Between children: their list stays empty.
            _ if matches!(open.last(), Some(Open::Children(_))) => {}
            b => sink.push(b),
        }
        at += 1;
    }
    open.is_empty().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_come_apart_and_the_rest_stays() {
        let text = br#"{"a":[1,{"children":[2]}],"head":{"f":"x{\"","children":[{"f":1,"k":{"children":[3]}},
            {"f":2,"children":[ ]}],"id":1},"z":{"head":{"q":1}}}"#;
        let flat = flatten(text).unwrap();
        let nodes: Vec<_> = (flat.nodes.iter())
            .map(|n| (n.parent, String::from_utf8_lossy(&n.json).into_owned()))
            .collect();
        assert_eq!(nodes.len(), 3);
        assert_eq!(
            nodes[0],
            (None, r#"{"f":"x{\"","children":[],"id":1}"#.to_string())
        );
        assert_eq!(nodes[1].0, Some(0));
        assert_eq!(nodes[1].1, r#"{"f":1,"k":{"children":[3]}}"#);
        let rest: serde_json::Value = serde_json::from_slice(&flat.rest).unwrap();
        assert_eq!(rest["z"]["head"]["q"], 1);
        assert!(rest["head"].is_null());
    }

    #[test]
    fn depth_is_no_matter_and_cut_texts_are_none() {
        let depth = 200_000;
        let mut text = br#"{"head":"#.to_vec();
        text.extend(br#"{"id":1,"children":["#.repeat(depth));
        text.extend(b"]}".repeat(depth));
        assert!(flatten(&text).is_none());
        text.push(b'}');
        assert_eq!(flatten(&text).unwrap().nodes.len(), depth);
        assert!(flatten(b"]").is_none());
        assert!(flatten(br#"{"head":{"children":[}"#).is_none());
    }
}
