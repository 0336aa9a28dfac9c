const ANCHOR=/^e[0-9a-f]{16}(-[0-9]+)?$/,byId=i=>document.getElementById(i);
function say(text,parent){const n=document.createElement("p");n.className="lede";n.textContent=text;parent.append(n)}
function column(e){const c=document.createElement("div"),t=e.querySelector("summary").cloneNode(true);
const h=document.createElement("div");h.className="ep head";h.append(...t.childNodes);
c.append(h,e.querySelector(".talk").cloneNode(true));
c.querySelectorAll("[id]").forEach(x=>x.removeAttribute("id"));return c}
function texts(t,kind){return [...t.querySelectorAll(kind)].map(x=>x.textContent).join("\n")}
function pair(a,b){const box=document.createElement("section");box.className="pair";box.id="pair";
const sides=[a,b].map(column),turns=sides.map(s=>[...s.querySelectorAll(".turn")]);
let said="",at=null;
const open=sides.map(s=>texts(s.querySelector(".opening"),"pre"));
if(open[0]!==open[1]){said="The openings differ.";
at=sides.map(s=>s.querySelector(".opening"))}
else for(let i=0;i<Math.max(turns[0].length,turns[1].length);i++){const [x,y]=turns.map(t=>t[i]);
const what=!x||!y?"one of them has ended":texts(x,".a>pre")!==texts(y,".a>pre")?"another reply":
texts(x,".o>pre")!==texts(y,".o>pre")?"the same reply, another answer":"";
if(what){said=`First difference: turn ${i+1} (${what}).`;at=[x,y];break}}
say(said||"All turns are equal.",box);
const back=document.createElement("a");back.href="#"+a.id;back.textContent="one at a time";box.append(back);
const two=document.createElement("div");two.className="two";two.append(...sides);box.append(two);
(at||[]).forEach(x=>x&&x.classList.add("differs"));
document.querySelector("main").classList.add("paired");document.querySelector("main").prepend(box);
const first=(at||[]).find(Boolean);if(first)first.scrollIntoView({block:"center"})}
function show(){const old=byId("pair");if(old){old.remove();document.querySelector("main").classList.remove("paired")}
const name=decodeURIComponent(location.hash.slice(1)),[a,b]=name.split("/");
if(b&&byId(a)&&byId(b))return pair(byId(a),byId(b));
const e=byId(name);if(e&&e.tagName==="DETAILS"){e.open=true;e.scrollIntoView()}
else if(ANCHOR.test(a)&&document.body.dataset.list&&!byId("elsewhere")){
const p=document.createElement("p");p.id="elsewhere";p.className="warn";
const l=document.createElement("a");l.href=document.body.dataset.list+"#"+name;
l.textContent="This episode has moved to another page: go there.";p.append(l);
document.querySelector("main").prepend(p)}}
addEventListener("hashchange",show);addEventListener("DOMContentLoaded",()=>{show();
if("live" in document.body.dataset)setInterval(()=>{if(!document.hidden&&!document.querySelector("details[open]"))
location.reload()},30000)});
