"""Pictures and files as OpenAI's formats write them: `data:` URLs, or addresses."""

from context_compaction.messages.model import Document, Image, JsonObject

UNKNOWN_IMAGE = "image/*"
UNKNOWN_FILE = "application/octet-stream"


def split_data_url(url: str) -> tuple[str, str] | None:
    """Media type and base64 text of a `data:` URL; None for an address or unencoded data."""
    if not url.startswith("data:"):
        return None
    head, comma, data = url[len("data:") :].partition(",")
    if not comma or not head.endswith(";base64"):
        return None
    return head.removesuffix(";base64").partition(";")[0], data


def image_from_url(url: str, source: JsonObject) -> Image:
    """The image that a `data:` URL holds, or that an address points to."""
    found = split_data_url(url)
    if found is None:
        return Image(UNKNOWN_IMAGE, url=url, source=source)
    return Image(found[0] or UNKNOWN_IMAGE, data=found[1], source=source)


def document_from_data(file_data: str, source: JsonObject) -> Document:
    """The file that OpenAI's `file_data` holds: a `data:` URL, or bare base64 text."""
    media_type, data = split_data_url(file_data) or (UNKNOWN_FILE, file_data)
    return Document(media_type or UNKNOWN_FILE, data=data, source=source)


def url_of(media: Image | Document) -> str:
    """The address of a picture or file: its own, or a `data:` URL with its content."""
    return media.url or f"data:{media.media_type};base64,{media.data or ''}"


def file_name(document: Document) -> str:
    """A file name with the ending that the media type suggests; OpenAI demands one."""
    return f"document.{document.media_type.rpartition('/')[2] or 'bin'}"


def describe(media: Image | Document) -> str:
    """One line in place of media that a format or role cannot carry."""
    kind = "image" if isinstance(media, Image) else "document"
    where = f" at {media.url}" if media.url else f", {len(media.data or '')} base64 characters"
    return f"[{kind}: {media.media_type}{where}]"
