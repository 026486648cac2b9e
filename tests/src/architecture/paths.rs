//! What a source file names, from its tokens.

use proc_macro2::{Delimiter, Ident, LexError, TokenStream, TokenTree};

/// A path that is named in code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) line: usize,
    /// The modules within the file that it stands in.
    pub(super) module: Vec<String>,
    /// `*` stands for a glob.
    pub(super) segments: Vec<String>,
}

/// What matters of a file.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Paths outside test modules.
    pub(super) named: Vec<Named>,
    /// Where `unsafe` stands, in test modules too.
    pub(super) unsafe_lines: Vec<usize>,
    /// Modules of other files that are declared under `#[cfg(test)]`.
    pub(super) test_modules: Vec<Vec<String>>,
}

impl Contents {
    pub(super) fn of(text: &str) -> Result<Self, LexError> {
        let mut contents = Self::default();
        contents.walk(&trees(text.parse()?), &mut Vec::new());
        Ok(contents)
    }

    fn walk(&mut self, tokens: &[TokenTree], module: &mut Vec<String>) {
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at = match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' && is_cfg_test(tokens.get(at + 1)) => {
                    self.pass_test_item(tokens, at + 2, module)
                }
                TokenTree::Ident(ident) if *ident == "unsafe" => {
                    self.unsafe_lines.push(ident.span().start().line);
                    at + 1
                }
                TokenTree::Ident(ident) if *ident == "use" => self.use_tree(tokens, at + 1, &[], module),
                TokenTree::Ident(ident) if *ident == "mod" => match tokens.get(at + 1..at + 3) {
                    Some([TokenTree::Ident(name), TokenTree::Group(body)]) => {
                        module.push(name.to_string());
                        self.walk(&trees(body.stream()), module);
                        module.pop();
                        at + 3
                    }
                    _ => at + 1,
                },
                TokenTree::Ident(ident) if is_colons(tokens, at + 1) && !is_keyword(ident) => {
                    self.path(tokens, at, module)
                }
                TokenTree::Group(group) => {
                    self.walk(&trees(group.stream()), module);
                    at + 1
                }
                _ => at + 1,
            };
        }
    }

    /// Passes an item behind `#[cfg(test)]`; only its `unsafe` counts.
    fn pass_test_item(&mut self, tokens: &[TokenTree], mut at: usize, module: &[String]) -> usize {
        let mut words = Vec::new();
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Ident(ident) if *ident == "unsafe" => self.unsafe_lines.push(ident.span().start().line),
                TokenTree::Ident(ident) => words.push(ident.to_string()),
                TokenTree::Punct(punct) if punct.as_char() == ';' => {
                    // `mod tests;`, perhaps with a visibility before it.
                    if let [.., keyword, name] = words.as_slice()
                        && keyword == "mod"
                    {
                        self.test_modules.push(module.iter().chain([name]).cloned().collect());
                    }
                    break;
                }
                TokenTree::Group(group) => {
                    let mut inside = Self::default();
                    inside.walk(&trees(group.stream()), &mut Vec::new());
                    self.unsafe_lines.extend(inside.unsafe_lines);
                    if group.delimiter() == Delimiter::Brace && !words.iter().any(|word| word == "use") {
                        break;
                    }
                }
                _ => {}
            }
        }
        at
    }

    /// Reads `a::b::c` from its first segment on.
    fn path(&mut self, tokens: &[TokenTree], mut at: usize, module: &[String]) -> usize {
        // What goes on behind a value, a call or a type in angle brackets is no path of its own.
        let goes_on = at > 1 && is_colons(tokens, at - 2);
        let leading =
            goes_on && !matches!(tokens.get(at.wrapping_sub(3)), Some(TokenTree::Punct(p)) if p.as_char() == '>');
        let line = tokens[at].span().start().line;
        let mut segments = Vec::new();
        while let Some(TokenTree::Ident(ident)) = tokens.get(at) {
            segments.push(ident.to_string());
            at += 1;
            if !is_colons(tokens, at) {
                break;
            }
            at += 2;
        }
        if !goes_on || leading {
            self.named.push(Named { line, module: module.to_vec(), segments });
        }
        at
    }

    /// Reads one tree of a `use` behind `prefix`, each of its branches as a path.
    fn use_tree(&mut self, tokens: &[TokenTree], mut at: usize, prefix: &[String], module: &[String]) -> usize {
        let mut segments = prefix.to_vec();
        let mut line = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Ident(ident) if *ident == "as" => {
                    // The new name is no segment.
                    at += 2;
                    continue;
                }
                TokenTree::Ident(ident) => {
                    line = ident.span().start().line;
                    // `self` in braces is the path before it.
                    if segments.is_empty() || *ident != "self" {
                        segments.push(ident.to_string());
                    }
                }
                TokenTree::Punct(punct) if punct.as_char() == '*' => {
                    line = punct.span().start().line;
                    segments.push("*".to_owned());
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => {}
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    let inside = trees(group.stream());
                    for branch in inside.split(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == ',')) {
                        if !branch.is_empty() {
                            self.use_tree(branch, 0, &segments, module);
                        }
                    }
                    return at + 1;
                }
                // `;` ends it. Anything else is not an import: `impl Trait + use<'a>`.
                _ => break,
            }
            at += 1;
        }
        if !segments.is_empty() {
            self.named.push(Named { line, module: module.to_vec(), segments });
        }
        at
    }
}

fn trees(stream: TokenStream) -> Vec<TokenTree> {
    stream.into_iter().collect()
}

/// Whether `::` stands at `at`.
fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    let colon = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == ':');
    colon(tokens.get(at)) && colon(tokens.get(at + 1))
}

/// Whether a path may stand behind this word, as in `impl ::core::fmt::Debug`: then the word is no part of it.
fn is_keyword(ident: &Ident) -> bool {
    ["as", "const", "dyn", "else", "for", "if", "impl", "in", "match", "mut", "return", "where", "while"]
        .iter()
        .any(|keyword| ident == keyword)
}

/// Whether this is what follows `#` in `#[cfg(test)]` or `#[cfg(all(test, ...))]`.
fn is_cfg_test(token: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(group)) = token else { return false };
    let text: String = group.stream().to_string().split_whitespace().collect();
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}
