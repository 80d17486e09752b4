//! Parts of HTML pages that need no other file: the document, figures, escaped text.

pub use tompion_plot::escaped as escape;

const STYLE: &str = include_str!("page.css");

/// Returns a page with its style sheet around a body, which is HTML; the title is text.
pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        escape(title)
    )
}

/// Returns a picture with its caption; both are HTML.
pub fn figure(picture: &str, caption: &str) -> String {
    format!("<figure>{picture}<figcaption>{caption}</figcaption></figure>\n")
}
