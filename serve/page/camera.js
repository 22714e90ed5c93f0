// Open the camera and read its frames.

const QUALITY = 0.85;

/** Open the camera. Throw an Error with a reason for people. */
export async function openCamera() {
  if (!navigator.mediaDevices) {
    throw new Error("Browsers allow the camera only for pages from https:// or from localhost.");
  }
  let stream = null;
  try {
    stream = await navigator.mediaDevices.getUserMedia({
      video: { facingMode: "environment", width: { ideal: 1280 } },
    });
    const video = document.createElement("video");
    video.muted = true;
    video.playsInline = true;
    video.srcObject = stream;
    await video.play();
    return new Camera(stream, video);
  } catch (error) {
    if (stream) stop(stream); // otherwise the camera stays on
    const reasons = {
      NotAllowedError: "The browser does not allow this page to use the camera. Allow it in the browser’s settings.",
      NotFoundError: "No camera found.",
      NotReadableError: "Another program uses the camera.",
    };
    throw new Error(reasons[error.name] ?? `The camera cannot be used: ${error.message}`);
  }
}

class Camera {
  constructor(stream, video) {
    this.stream = stream;
    this.video = video;
  }

  /** Return the current frame as ImageBitmap and as JPEG file. Throw an Error once the camera is gone. */
  async frame() {
    if (this.stream.getVideoTracks().every((track) => track.readyState === "ended")) {
      throw new Error("The camera is gone: it was unplugged, or the browser withdrew the permission.");
    }
    const { videoWidth: width, videoHeight: height } = this.video;
    const canvas = new OffscreenCanvas(width, height);
    canvas.getContext("2d").drawImage(this.video, 0, 0);
    const file = await canvas.convertToBlob({ type: "image/jpeg", quality: QUALITY });
    return { picture: canvas.transferToImageBitmap(), file };
  }

  close() {
    stop(this.stream);
    this.video.srcObject = null;
  }
}

function stop(stream) {
  for (const track of stream.getTracks()) track.stop();
}
